"""``gpuwatch usage``: GPU-hours held and used, by user, job or program, of a recording."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from gpuwatch.cli.input_files import latest_recording, read_recording
from gpuwatch.cli.option_types import Choice
from gpuwatch.cli.output import check_writable, format_option, output_option, publish, redact_option
from gpuwatch.cli.progress import progress
from gpuwatch.core.errors import UsageError
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
@click.option(
    "--since",
    metavar="TIME",
    help="Start: 7d, 24h, 14:05, 2026-05-11T14:05 (default: 7d). 7d counts back from the end of the recording.",
)
@click.option("--until", metavar="TIME", help="End, in the same format (default: the end of the recording).")
@click.option(
    "--by", type=Choice(list(get_args(GroupBy))), default="user", show_default=True, help="Group the hours by this."
)
@output_option
@format_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, a row for each group.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (gpuwatch.usage/1).")
@redact_option
def usage(
    file: Path | None,
    since: str | None,
    until: str | None,
    by: GroupBy,
    output: Path | None,
    format_name: str | None,
    as_csv: bool,
    as_json: bool,
    redact: bool,
) -> None:
    """Sum up GPU-hours held and used.

    Sums by user, job, container, program, framework or process, from a recording (FILE, or this machine's). Held is
    the time that processes spent on a GPU; used is that time multiplied by their SM utilization. Nothing is counted
    for gaps in the recording.
    """
    check_writable(output, any_suffix=format_name is not None or as_csv)
    if (as_json + as_csv + (format_name is not None)) > 1:
        raise UsageError("--json, --csv and --format cannot be combined")
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
        publish(document, output, as_json=as_json, format_name="csv" if as_csv else format_name, redact=redact)
