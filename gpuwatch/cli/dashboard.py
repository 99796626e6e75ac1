"""``gpuwatch`` alone: the dashboard."""

from __future__ import annotations

import sys

import click

from gpuwatch.cli.options import enter_simulation
from gpuwatch.errors import UsageError
from gpuwatch.monitor.collector import Collector


def run(ctx: click.Context, interval: float) -> int:
    """Shows the dashboard until the user leaves; the exit code of the program."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the dashboard needs a terminal", hint="in a pipe or a job use gpuwatch snapshot")
    enter_simulation(ctx)
    collector = Collector(interval)
    # The collector opens the driver while this process imports the screens.
    collector.launch()
    try:
        from gpuwatch.ui.app import run_dashboard

        return run_dashboard(collector)
    finally:
        collector.stop()
