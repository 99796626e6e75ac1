"""``gpuwatch`` alone: the dashboard."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.options import enter_simulation
from gpuwatch.errors import UsageError
from gpuwatch.monitor.collector import Collector

if TYPE_CHECKING:
    from gpuwatch.history.ring import History
    from gpuwatch.model.findings import Finding
    from gpuwatch.model.snapshot import Snapshot


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

        return run_dashboard(collector, diagnose=findings)
    finally:
        collector.stop()


def findings(snapshot: Snapshot, history: History | None = None) -> tuple[Finding, ...]:
    """What is wrong with the machine as this snapshot, and its history, show it."""
    from gpuwatch.diagnosis.engine import diagnose
    from gpuwatch.diagnosis.evidence import Evidence

    found = diagnose(Evidence(snapshot=snapshot, history=history))
    return tuple(finding for finding in found if finding.id != "healthy")
