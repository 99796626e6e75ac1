"""``gpuwatch`` alone: the dashboard."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import early
from gpuwatch.cli.options import enter_simulation
from gpuwatch.errors import UsageError
from gpuwatch.formatting.terminal import cannot_draw, has_few_colors, needs_ascii
from gpuwatch.monitor.collector import Collector

if TYPE_CHECKING:
    from gpuwatch.diagnosis.overtime.watch import Watch
    from gpuwatch.history.ring import History
    from gpuwatch.model.findings import Finding
    from gpuwatch.model.snapshot import Snapshot
    from gpuwatch.monitor.feed import FeedStatus
    from gpuwatch.ui.preferences import Loaded


def run(ctx: click.Context, settings: Loaded) -> int:
    """Shows the dashboard until the user leaves; the exit code of the program."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the dashboard needs a terminal", hint="in a pipe or a job use gpuwatch snapshot")
    unable = cannot_draw(os.environ)
    if unable:
        raise UsageError(unable, hint="gpuwatch snapshot prints the same as text")
    enter_simulation(ctx)
    # The collector opens the driver while this process imports the screens. What an import makes stays:
    # looking for garbage among it costs a tenth of the start, and again whenever it is looked at later.
    gc.disable()
    begun = early.take()
    first = begun.collector if begun is not None else None
    collector = Collector(settings.preferences.interval, gpm=settings.preferences.gpm, first=first)
    try:
        if begun is None:
            begun = early.Start(collector.launch())
            begun.paint(settings.preferences)
        elif collector.interval != early.INTERVAL:
            collector.interval = settings.preferences.interval
        collector.read_ahead(begun.frames)
        begun.frames = []
        feed = EarlyFeed(collector)
        from gpuwatch.ui.app import run_dashboard

        gc.freeze()
        gc.enable()
        if begun.picture is not None:
            begun.picture.hand_over()
        early.go_on()
        ascii_only = bool(needs_ascii(os.environ, sys.stdout.encoding))
        few_colors = has_few_colors(os.environ)
        return run_dashboard(feed, diagnose=watching(), settings=settings, ascii_only=ascii_only, few_colors=few_colors)
    finally:
        collector.stop()
        if begun is not None:
            begun.leave()
        for line in settings.lines:
            # All of it where it stays, now that the screen is gone.
            click.echo(f"gpuwatch: {line}", err=True)


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
        return self._collector.drain(ageing=False)

    def status(self) -> FeedStatus:
        """How the collector is doing."""
        return self._collector.status()

    def resumed(self) -> None:
        """This process stood still, and goes on."""
        self._collector.resumed()

    def stop(self) -> None:
        """Ends the process and the threads."""
        self._collector.stop()


def watching() -> Callable[[Snapshot, History], tuple[Finding, ...]]:
    """What shows over time: findings that hold now, ``healthy`` where none does, then those that are past.

    The rules are imported when they are first asked, which is after the first frame.
    """
    watch: Watch | None = None

    def diagnose(snapshot: Snapshot, history: History) -> tuple[Finding, ...]:
        nonlocal watch
        if watch is None:
            from gpuwatch.diagnosis.overtime.watch import Watch

            watch = Watch()
        return (*watch.look(snapshot), *reversed(watch.past))

    return diagnose


def findings(snapshot: Snapshot, history: History | None = None) -> tuple[Finding, ...]:
    """What is wrong with the machine as this one snapshot shows it."""
    from gpuwatch.diagnosis.engine import diagnose
    from gpuwatch.diagnosis.evidence import Evidence

    found = diagnose(Evidence(snapshot=snapshot))
    return tuple(finding for finding in found if finding.id != "healthy")
