"""``gpuwatch`` alone: the dashboard."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.options import enter_simulation
from gpuwatch.errors import UsageError
from gpuwatch.monitor.collector import Collector

if TYPE_CHECKING:
    from gpuwatch.history.ring import History
    from gpuwatch.model.findings import Finding
    from gpuwatch.model.snapshot import Snapshot
    from gpuwatch.monitor.feed import FeedStatus


def run(ctx: click.Context, interval: float, *, read_only: bool = False) -> int:
    """Shows the dashboard until the user leaves; the exit code of the program."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the dashboard needs a terminal", hint="in a pipe or a job use gpuwatch snapshot")
    if not (sys.stdout.encoding or "").lower().startswith("utf"):
        raise UsageError(
            f"the dashboard needs a UTF-8 terminal, and this one says {sys.stdout.encoding}",
            hint="set LANG to a UTF-8 locale, C.UTF-8 for example",
        )
    enter_simulation(ctx)
    # The collector opens the driver while this process imports the screens. What an import makes stays:
    # looking for garbage among it costs a tenth of the start, and again whenever it is looked at later.
    gc.disable()
    feed = EarlyFeed(Collector(interval))
    try:
        from gpuwatch.ui.app import run_dashboard

        gc.freeze()
        gc.enable()
        return run_dashboard(feed, diagnose=findings, read_only=read_only)
    finally:
        feed.stop()


class EarlyFeed:
    """A collector that runs before the dashboard does, so that its first frame already has a sample."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._wake: Callable[[], None] | None = None
        collector.start(self._arrived)

    @property
    def interval(self) -> float:
        """Seconds between samples."""
        return self._collector.interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        self._collector.interval = seconds

    def start(self, wake: Callable[[], None] | None = None) -> None:
        """From now on ``wake`` is told; samples that came before wait to be drained."""
        self._wake = wake

    def _arrived(self) -> None:
        if self._wake is not None:
            self._wake()

    def drain(self) -> list[Snapshot]:
        """Every snapshot since the last call, oldest first."""
        return self._collector.drain()

    def status(self) -> FeedStatus:
        """How the collector is doing."""
        return self._collector.status()

    def stop(self) -> None:
        """Ends the process and the threads."""
        self._collector.stop()


def findings(snapshot: Snapshot, history: History | None = None) -> tuple[Finding, ...]:
    """What is wrong with the machine as this snapshot, and its history, show it."""
    from gpuwatch.diagnosis.engine import diagnose
    from gpuwatch.diagnosis.evidence import Evidence

    found = diagnose(Evidence(snapshot=snapshot, history=history))
    return tuple(finding for finding in found if finding.id != "healthy")
