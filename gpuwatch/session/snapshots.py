"""Snapshots of this machine with rates, one or a stream of them; of the host alone while the driver does not answer."""

from __future__ import annotations

import datetime
import importlib
import os
import threading
import time
from collections.abc import Iterator
from subprocess import Popen
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gpuwatch.core.model.driver_advice import REPLACE_CRASHING_LIBRARY
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import FAILED_ITSELF, Problem, Snapshot
from gpuwatch.machine.collector.forked_collector import SAMPLE_GAP_SECONDS, ForkedProcess
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.machine.sources.host_reader import HostReader
from gpuwatch.sim.environment import ENV_STATE

if TYPE_CHECKING:
    from gpuwatch.session.session import Session

_MAX_STARVED_SECONDS = 60.0
"""Seconds beyond the deadline that a collector without a CPU is waited for."""
_LATE_SECONDS = 3.0
"""Seconds that a sample may be late, besides the interval, until the stream says that the driver does not answer."""


class Silence(NamedTuple):
    """Why samples did not come; nothing of it if they did."""

    failure: str = ""
    """The error, if gpuwatch itself failed."""
    collector_fault: str = ""
    """Fault of the collector, completing "the collector …"; empty if the driver did not answer."""
    detail: str = ""


def silence(feed: LiveFeed) -> Silence:
    """Why the feed is silent now."""
    detail, collector_fault = feed.silence()
    return Silence(feed.failure, collector_fault, detail)


def take_samples(
    count: int,
    deadline: float,
    *,
    on_demand: bool = False,
    gpm: bool = False,
    first: Popen[bytes] | ForkedProcess | None = None,
    preload: tuple[str, ...] = (),
) -> tuple[list[Snapshot], Silence]:
    """Up to ``count`` snapshots, and why there are fewer.

    The driver has ``deadline`` seconds; those in which the collector waits for a CPU of a busy machine do not count.
    ``first``: a collector that is running already. ``preload``: modules that the caller uses next.
    """
    feed = LiveFeed(SAMPLE_GAP_SECONDS, on_demand=on_demand, gpm=gpm, first=first)
    feed.start()
    try:
        # While the driver starts, and rates need a second sample: the first use of these takes as long.
        for module in ("gpuwatch.explain.diagnosis.rule_engine", *preload):
            importlib.import_module(module)
        snapshots, waited = feed.wait(count, deadline), deadline
        while (
            len(snapshots) < count
            and (extra_seconds := deadline + min(feed.waited_for_cpu, _MAX_STARVED_SECONDS) - waited) > 0
        ):
            snapshots += feed.wait(count - len(snapshots), extra_seconds)
            waited += extra_seconds
        return snapshots, Silence() if snapshots else silence(feed)
    finally:
        feed.stop()


def take_snapshot(
    deadline: float,
    *,
    gpm: bool = False,
    first: Popen[bytes] | ForkedProcess | None = None,
    preload: tuple[str, ...] = (),
    hint_end: str = "",
) -> tuple[Snapshot, bool]:
    """A snapshot with rates, and whether the driver answered within ``deadline`` seconds.

    See :func:`take_samples`, and :func:`without_driver` for ``hint_end``.
    """
    snapshots, silence = take_samples(2, deadline, on_demand=True, gpm=gpm, first=first, preload=preload)
    if snapshots:
        return snapshots[-1], True
    return without_driver(deadline, silence, hint_end=hint_end), False


def without_driver(
    seconds: float,
    silence: Silence,
    *,
    hint_end: str = "",
    is_still_waiting: bool = False,
    machine: Snapshot | None = None,
) -> Snapshot:
    """The host alone, and as a problem that the driver did not answer within ``seconds`` seconds, or what else it was.

    ``hint_end``: ends the hint. ``is_still_waiting``: the driver is still waited for. ``machine``: the host, if it was
    read.
    """
    simulated = bool(os.environ.get(ENV_STATE))  # the library itself does not answer
    fault_hint = "to clear a simulated fault: gpuwatch sim fault clear" if simulated else "check dmesg for a hung GPU"
    crashed_in_nvml = " in nvml" in silence.collector_fault  # which is known before the time is over
    period = f"for {seconds:.0f} s" if is_still_waiting else f"within {seconds:g} s"
    silence_text = f"no answer from the driver {period}" if is_still_waiting else f"the driver did not answer {period}"
    problem_text = (
        f"no sample{'' if crashed_in_nvml else f' {period}'}: the collector {silence.collector_fault}"
        if silence.collector_fault
        else ""
    )
    problem_text = problem_text or ": ".join(filter(None, (silence_text, silence.detail)))
    reason, hint = "driver.bad-state", f"{fault_hint}{hint_end}"
    if crashed_in_nvml:
        hint = fault_hint if simulated else REPLACE_CRASHING_LIBRARY
    if silence.failure:
        problem_text, _, hint = silence.failure.partition("; ")
        reason = FAILED_ITSELF
    elif silence.collector_fault and not crashed_in_nvml:
        reason, hint = FAILED_ITSELF, f"nothing is known about the driver{hint_end}"
    problem = Problem(source="collector", reason=reason, detail=problem_text, hint=hint)
    if machine is not None:
        return replace(machine, problems=(problem,))
    reader = HostReader()  # which needs no driver
    reader.read()
    time.sleep(SAMPLE_GAP_SECONDS)
    host, problems = reader.read()
    return Snapshot(
        taken_at=datetime.datetime.now(datetime.UTC),
        took_seconds=seconds,
        simulated=simulated,
        driver=None,
        devices=(),
        processes=(),
        host=host,
        problems=(problem, *problems),
    )


def findings_of(snapshot: Snapshot) -> tuple[Finding, ...]:
    """The findings of this one snapshot."""
    from gpuwatch.explain.diagnosis.evidence import Evidence
    from gpuwatch.explain.diagnosis.rule_engine import diagnose

    findings = diagnose(Evidence(snapshot=snapshot))
    return tuple(finding for finding in findings if finding.id != "healthy")


def stream_snapshots(interval: float, *, gpm: bool = False) -> Iterator[Snapshot]:
    """A snapshot every ``interval`` seconds, without end. While the driver does not answer, one of the host alone.

    The samples may be those of a recorder on this machine.
    """
    from gpuwatch.machine.history.last_hour import LastHour
    from gpuwatch.session.session import Session  # which a single snapshot does without

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
    gpuwatch_failed = status.collector_fault == "failed"
    silence = Silence(
        status.detail if gpuwatch_failed else "", "" if gpuwatch_failed else status.collector_fault, status.detail
    )
    return without_driver(seconds, silence, is_still_waiting=True, machine=status.machine)
