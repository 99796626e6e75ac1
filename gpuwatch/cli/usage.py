"""``gpuwatch usage``: GPU-hours held and used, by user, job or program, of a recording."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from gpuwatch.cli.input_files import latest_recording, read_recording
from gpuwatch.cli.option_types import Choice
from gpuwatch.cli.output import Output, output_options
from gpuwatch.cli.progress import progress
from gpuwatch.cli.shared_options import period_options
from gpuwatch.core.model.gpu_time_usage import GroupBy

_EXAMPLES = """\b
Examples:
  gpuwatch usage                                    the last 7 days of this machine, by user
  gpuwatch usage --since 2026-05-01 --until 2026-06-01 --by job -o may.html
  gpuwatch usage node07.gpuwatch --since 24h --by command
  gpuwatch usage --by process --csv > processes.csv
"""
_DEFAULT_SECONDS = 7 * 86_400.0
"""Seconds before the end of the recording, where no start is given."""


@click.command(epilog=_EXAMPLES)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@period_options("7d")
@click.option(
    "--by", type=Choice(list(get_args(GroupBy))), default="user", show_default=True, help="Group the hours by this."
)
@output_options("Print JSON (gpuwatch.usage/1).", "Print CSV, a row for each group.", with_format=True)
def usage(file: Path | None, since: str | None, until: str | None, by: GroupBy, output: Output) -> None:
    """Sum up GPU-hours held and used.

    Sums by user, job, container, program, framework or process, from a recording (FILE, or this machine's). Held is
    the time that processes spent on a GPU; used is that time multiplied by their SM utilization. Nothing is counted
    for gaps in the recording.
    """
    from gpuwatch.machine.recording.gpu_time_by_group import gpu_usage
    from gpuwatch.machine.recording.time_expressions import parse_begin, parse_moment

    path = file if file is not None else latest_recording()
    with read_recording(path) as recording:
        first, last = recording.extent()
        end = last if until is None else parse_moment(until, last)
        begin = max(end - _DEFAULT_SECONDS, first) if since is None else parse_begin(since, last)

        def show(share: float) -> None:
            progress(f"reading samples: {100 * share:.0f} %" if share < 1 else "")

        document = gpu_usage(recording, begin, None if until is None else end, by, show)
        progress("")
        output.publish(document)
