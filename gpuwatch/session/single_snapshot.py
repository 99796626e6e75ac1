"""A single snapshot with rates; of the host alone if the driver does not answer."""

from __future__ import annotations

import datetime
import importlib
import os
import time
from subprocess import Popen
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import FAILED_ITSELF, Problem, Snapshot
from gpuwatch.machine.collector.forked_collector import SAMPLE_GAP_SECONDS, ForkedProcess
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.machine.sources.host_reader import HostReader
from gpuwatch.sim.simulated_sysfs import ENV_STATE

_MAX_STARVED_SECONDS = 60.0
"""Seconds beyond the deadline that a collector without a CPU is waited for."""


class Silence(NamedTuple):
    """Why samples did not come; nothing of it if they did."""

    failure: str = ""
    """The error, if gpuwatch itself failed."""
    blame: str = ""
    """Fault of the collector, completing "the collector …"; empty if the driver did not answer."""
    detail: str = ""


def silence(feed: LiveFeed) -> Silence:
    """Why the feed is silent now."""
    detail, blame = feed.silence()
    return Silence(feed.failure, blame, detail)


def take_samples(
    count: int,
    deadline: float,
    *,
    on_demand: bool = False,
    gpm: bool = False,
    first: Popen[bytes] | ForkedProcess | None = None,
) -> tuple[list[Snapshot], Silence]:
    """Up to ``count`` snapshots, and why there are fewer.

    The driver has ``deadline`` seconds; those in which the collector waits for a CPU of a busy machine do not count.
    ``first``: a collector that is running already.
    """
    feed = LiveFeed(SAMPLE_GAP_SECONDS, on_demand=on_demand, gpm=gpm, first=first)
    feed.start()
    try:
        # While the driver starts, and rates need a second sample: the first use of these takes as long.
        importlib.import_module("gpuwatch.explain.diagnosis.rule_engine")
        importlib.import_module("gpuwatch.share.reports.formats.text")
        found, given = feed.wait(count, deadline), deadline
        while len(found) < count and (more := deadline + min(feed.waited_for_cpu, _MAX_STARVED_SECONDS) - given) > 0:
            found += feed.wait(count - len(found), more)
            given += more
        return found, Silence() if found else silence(feed)
    finally:
        feed.stop()


def take_snapshot(
    deadline: float, *, gpm: bool = False, first: Popen[bytes] | ForkedProcess | None = None
) -> tuple[Snapshot, bool]:
    """A snapshot with rates, and whether the driver answered within ``deadline`` seconds; see :func:`take_samples`."""
    taken, why = take_samples(2, deadline, on_demand=True, gpm=gpm, first=first)
    if taken:
        return taken[-1], True
    return without_driver(deadline, why, longer="; to wait longer: --deadline"), False


def without_driver(
    waited: float, why: Silence, *, longer: str = "", lasts: bool = False, machine: Snapshot | None = None
) -> Snapshot:
    """The host alone, and as a problem that the driver did not answer within ``waited`` seconds, or what else it was.

    ``longer``: ends the hint. ``lasts``: the driver is still waited for. ``machine``: the host, if it was read.
    """
    simulated = bool(os.environ.get(ENV_STATE))  # the library itself does not answer
    cure = "to clear a simulated fault: gpuwatch sim fault clear" if simulated else "check dmesg for a hung GPU"
    crashed = " in nvml" in why.blame  # which is known before the time is over
    within = f"for {waited:.0f} s" if lasts else f"within {waited:g} s"
    silent = f"no answer from the driver {within}" if lasts else f"the driver did not answer {within}"
    what = f"no sample{'' if crashed else f' {within}'}: the collector {why.blame}" if why.blame else ""
    what = what or ": ".join(filter(None, (silent, why.detail)))
    reason, hint = "driver.bad-state", f"{cure}{longer}"
    if why.failure:
        what, _, hint = why.failure.partition("; ")
        reason = FAILED_ITSELF
    elif why.blame and not crashed:
        reason, hint = FAILED_ITSELF, f"nothing is known about the driver{longer}"
    problem = Problem(source="collector", reason=reason, detail=what, hint=hint)
    if machine is not None:
        return replace(machine, problems=(problem,))
    reader = HostReader()  # which needs no driver
    reader.read()
    time.sleep(SAMPLE_GAP_SECONDS)
    host, problems = reader.read()
    return Snapshot(
        taken_at=datetime.datetime.now(datetime.UTC),
        took_seconds=waited,
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

    found = diagnose(Evidence(snapshot=snapshot))
    return tuple(finding for finding in found if finding.id != "healthy")
