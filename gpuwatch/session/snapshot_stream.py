"""Samples of this machine one after another, each with the findings at that time; also while the driver hangs."""

from __future__ import annotations

import datetime
import os
import threading
import time
from collections.abc import Iterator

from msgspec.structs import replace

from gpuwatch.core.model.snapshot import FAILED_ITSELF, Host, Problem, Snapshot
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.session.session import Session
from gpuwatch.sim.sysfs import ENV_STATE

_SLACK = 3.0
"""Seconds that a sample may be late, besides the interval, until the stream says that the driver does not answer."""


def stream(interval: float, *, gpm: bool = False) -> Iterator[Snapshot]:
    """A snapshot every ``interval`` seconds, without end. While the driver does not answer, one of the host alone.

    The samples may be those of a recorder on this machine.
    """
    session = Session(LiveFeed(interval, on_demand=True, gpm=gpm, share=True))
    arrived = threading.Event()
    session.start(arrived.set)
    last = time.monotonic()
    try:
        while True:
            arrived.wait(interval if session.snapshot is not None else min(interval, 1.0))
            arrived.clear()
            taken = session.take()
            session.diagnose()
            if taken:
                last = time.monotonic()
                current = tuple(one for one in session.findings if one.until is None and one.id != "healthy")
                yield replace(taken[-1], findings=current)
                continue
            session.look_at_feed()
            silence = time.monotonic() - last
            if silence > interval + _SLACK:
                arrived.wait(interval)  # not more often than samples would come
                yield _silent(session, silence)
    finally:
        session.stop()


def _silent(session: Session, seconds: float) -> Snapshot:
    """The host while its driver does not answer, for this long."""
    status = session.feed.status()
    if status.blame == "failed":
        what, _, hint = status.detail.partition("; ")
        problem = Problem(source="collector", reason=FAILED_ITSELF, detail=what, hint=hint)
    else:
        who = f"the collector {status.blame}," if status.blame else "no answer from the driver"
        detail = "; ".join(filter(None, (f"{who} for {seconds:.0f} s", "" if status.blame else status.detail)))
        problem = Problem(source="collector", reason="driver.bad-state", detail=detail, hint="see dmesg there")
    if status.machine is not None:
        return replace(status.machine, problems=(problem,))
    return Snapshot(
        taken_at=datetime.datetime.now(datetime.UTC),
        took_seconds=0.0,
        simulated=bool(os.environ.get(ENV_STATE)),
        driver=None,
        devices=(),
        processes=(),
        host=Host(
            hostname=os.uname().nodename,
            cpu_percent=None,
            cpu_count=None,
            memory_used_bytes=None,
            memory_total_bytes=None,
        ),
        problems=(problem,),
    )
