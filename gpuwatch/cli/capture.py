"""``gpuwatch capture``: what a GPU answers, as a file that anybody can send."""

from __future__ import annotations

import os
from pathlib import Path

import click

from gpuwatch.cli.option_types import Duration
from gpuwatch.cli.output import output_file_option, print_line
from gpuwatch.cli.progress import progress, progress_wanted
from gpuwatch.cli.shared_options import gpm_option, gpm_option_value
from gpuwatch.cli.sim_options import enter_simulation, sim_option
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.durations import rounded_duration
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import size

_EXAMPLES = """\b
Examples:
  gpuwatch capture -o h100.gpuwatch              60 s of whatever runs
  gpuwatch capture -o h100.gpuwatch --for 10m --gpm
  gpuwatch --sim h100.gpuwatch                   simulated GPUs that respond like these
"""


@click.command(epilog=_EXAMPLES)
@output_file_option("Record to FILE.", required=True)
@click.option(
    "--for", "seconds", type=Duration(1.0, 3600.0), default="60s", show_default=True, help="Record for this long."
)
@gpm_option
@sim_option
@click.pass_context
def capture(ctx: click.Context, output: Path, seconds: float) -> None:
    """Capture what the driver reports about these GPUs in a file.

    Writes each reading, with its value or the driver's error code, every second, and the output of nvidia-smi -q -x.
    Users, hosts, paths, addresses and ids are replaced. FILE is a recording: check it with gpuwatch replay before you
    send it.
    """
    if os.path.lexists(output):
        raise UsageError(f"{printable_path(output)} exists", hint="name a new file")
    enter_simulation(ctx)
    from gpuwatch.session.capture_driver_answers import capture_samples

    if not progress_wanted():
        print_line(f"gpuwatch: capturing for {rounded_duration(seconds)}")
    try:
        samples = capture_samples(
            output,
            seconds,
            gpm=bool(gpm_option_value(ctx)),
            show=lambda share: progress(f"capturing: {share:.0%} of {rounded_duration(seconds)}"),
        )
    finally:
        progress("")
    written = f"{printable_path(output)} ({size(output.stat().st_size)})"
    print_line(f"gpuwatch: {count_text(samples, 'sample')} in {written}: gpuwatch replay shows them")
