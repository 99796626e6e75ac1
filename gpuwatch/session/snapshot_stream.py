"""Samples of this machine one after another, each with the findings at that time; also while the driver hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from msgspec.structs import replace

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.machine.history.last_hour import LastHour
from gpuwatch.session.session import Session
from gpuwatch.session.single_snapshot import Silence, without_driver

_LATE_SECONDS = 3.0
"""Seconds that a sample may be late, besides the interval, until the stream says that the driver does not answer."""


def stream_snapshots(interval: float, *, gpm: bool = False) -> Iterator[Snapshot]:
    """A snapshot every ``interval`` seconds, without end. While the driver does not answer, one of the host alone.

    The samples may be those of a recorder on this machine.
    """
    # A timeline that is given is not written: nobody looks back here.
    session = Session(LiveFeed(interval, on_demand=True, gpm=gpm, share=True), timeline=LastHour())
    has_arrived = threading.Event()
    session.start(has_arrived.set)
    last_arrival = time.monotonic()
    try:
        while True:
            has_arrived.wait(interval if session.snapshot is not None else min(interval, 1.0))
            has_arrived.clear()
            snapshots = session.take()
            session.diagnose()
            if snapshots:
                last_arrival = time.monotonic()
                current_findings = tuple(
                    finding for finding in session.findings if finding.until is None and finding.id != "healthy"
                )
                yield replace(snapshots[-1], findings=current_findings)
                continue
            session.look_at_feed()
            silent_seconds = time.monotonic() - last_arrival
            if silent_seconds > interval + _LATE_SECONDS:
                has_arrived.wait(interval)  # not more often than samples would come
                yield _host_snapshot(session, silent_seconds)
    finally:
        session.stop()


def _host_snapshot(session: Session, seconds: float) -> Snapshot:
    """The host while its driver does not answer, for this long."""
    status = session.feed.status()
    gpuwatch_failed = status.blame == "failed"
    silence = Silence(status.detail if gpuwatch_failed else "", "" if gpuwatch_failed else status.blame, status.detail)
    return without_driver(seconds, silence, is_still_waiting=True, machine=status.machine)
