"""A single snapshot with rates; of the host alone if the driver does not answer."""

from __future__ import annotations

import datetime
import importlib
import os
import time

from gpuwatch.model.findings import Finding
from gpuwatch.model.snapshot import FAILED_ITSELF, Host, Problem, Snapshot
from gpuwatch.monitor.live_feed import LiveFeed
from gpuwatch.sim.sysfs import ENV_STATE
from gpuwatch.sources.host import HostReader

_BETWEEN = 0.25
"""Seconds between two samples: CPU and rates need two."""


def samples(count: int, deadline: float, *, on_demand: bool = False, gpm: bool = False) -> tuple[list[Snapshot], str]:
    """Up to ``count`` snapshots within ``deadline`` seconds, and the error of gpuwatch itself that prevented them."""
    feed = LiveFeed(_BETWEEN, on_demand=on_demand, gpm=gpm)
    feed.start()
    try:
        # While the driver starts, and rates need a second sample: the first use of these takes as long.
        importlib.import_module("gpuwatch.diagnosis.engine")
        importlib.import_module("gpuwatch.reports.formats.text")
        return feed.wait(count, deadline), feed.failure
    finally:
        feed.stop()


def take(deadline: float, *, gpm: bool = False) -> tuple[Snapshot, bool]:
    """A snapshot with rates, and whether the driver answered within ``deadline`` seconds."""
    taken, failure = samples(2, deadline, on_demand=True, gpm=gpm)
    if taken:
        return taken[-1], True
    return without_driver(deadline, failure, longer="; to wait longer: --deadline"), False


def without_driver(waited: float, failure: str, *, longer: str = "") -> Snapshot:
    """The host alone, and as a problem that the driver did not answer within ``waited`` seconds.

    ``failure``: the error of gpuwatch itself that prevented it. ``longer``: ends the hint.
    """
    simulated = bool(os.environ.get(ENV_STATE))  # the library itself does not answer
    cure = "to clear a simulated fault: gpuwatch sim fault clear" if simulated else "see dmesg for a GPU that hangs"
    problem = Problem(
        source="collector",
        reason="driver.bad-state",
        detail=f"the driver did not answer within {waited:g} s",
        hint=f"{cure}{longer}",
    )
    if failure:
        what, _, rest = failure.partition("; ")
        problem = Problem(source="collector", reason=FAILED_ITSELF, detail=what, hint=rest)
    host, problems = _host()
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


def _host() -> tuple[Host, list[Problem]]:
    """The host, which can be read although the driver does not answer."""
    reader = HostReader()
    reader.read()
    time.sleep(_BETWEEN)
    return reader.read()


def findings(snapshot: Snapshot) -> tuple[Finding, ...]:
    """The findings of this one snapshot."""
    from gpuwatch.diagnosis.engine import diagnose
    from gpuwatch.diagnosis.evidence import Evidence

    found = diagnose(Evidence(snapshot=snapshot))
    return tuple(finding for finding in found if finding.id != "healthy")
