"""What the panes are asked to show: one immutable bundle per redraw."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpuwatch.model.findings import CAUSES, SEVERITY_ORDER, Finding
from gpuwatch.model.snapshot import Device, Host, Snapshot
from gpuwatch.monitor.wire import aged
from gpuwatch.sim.sysfs import ENV_STATE

if TYPE_CHECKING:
    from gpuwatch.history.happened import Happened
    from gpuwatch.history.ring import History
    from gpuwatch.monitor.feed import FeedStatus

_LATE = 3.0
"""Seconds beyond the interval after which what is known of the host is old."""
_CAUSE_ORDER = {cause: rank for rank, cause in enumerate(CAUSES)}

BAD_STATES = frozenset({"lost", "reset-required", "failed"})
"""Device states in which the readings cannot be believed."""


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """Where in the kept history a paused display stands."""

    moment: float
    """When the sample on screen was taken, in seconds since the epoch."""
    times: Sequence[float]
    """When all kept samples were taken, oldest first."""
    marks: Sequence[tuple[float, str]]
    """When something happened, and how bad it is."""
    asked: float
    """Seconds between the samples that go on coming; further back they lie wider apart."""


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A snapshot with what surrounds it. ``snapshot`` is None until the first one came.

    While the driver keeps the first one waiting, it is what the host alone tells: see :attr:`waiting`.
    """

    snapshot: Snapshot | None
    history: History
    status: FeedStatus
    now: float
    interval: float
    """Seconds between the samples that are shown."""
    findings: tuple[Finding, ...] = ()
    paused_since: float | None = None
    read_only: bool = False
    until: float | None = None
    """Where graphs end: the moment of the snapshot, which stands still while paused."""
    events: Sequence[Happened] = ()
    """What happened, oldest first. The watcher's own list, or a copy while paused."""
    unseen: int = 0
    """Events since the Events tab was looked at."""
    wrong: tuple[Finding, ...] = field(default=())
    """Errors and warnings, the most important first."""
    troubled: float = float("-inf")
    """When something was wrong last, the feed included; seconds since the epoch."""
    live: View | None = None
    """What is now, while something else is shown."""
    past: Shown | None = None
    """Where in the kept history this is; None: it is what is now."""
    ageless: bool = False
    """Whether rows of processes have the run times of an earlier sample, since which none has changed."""

    def whole(self) -> View:
        """The same with the run times of its own moment."""
        if not self.ageless or self.snapshot is None:
            return self
        return replace(self, snapshot=aged(self.snapshot), ageless=False)

    @property
    def waiting(self) -> bool:
        """Whether the driver has not answered yet: nothing is known of any GPU, not even whether there is one."""
        return self.snapshot is None or self.snapshot is self.status.machine

    @property
    def host(self) -> Host | None:
        """The machine around the GPUs: read just now also while the driver does not answer."""
        told = self.snapshot
        if self.paused_since is None and self.status.machine is not None:
            told = self.status.machine
        return told.host if told is not None else None

    @property
    def host_stale(self) -> bool:
        """True when :attr:`host` is older than it should be."""
        told = self.status.machine if self.paused_since is None else None
        return self.stale if told is None else self.now - told.taken_at.timestamp() > self.interval + _LATE

    @property
    def simulated(self) -> bool:
        """Whether the GPUs are; before their driver has answered, whether simulated ones were asked for."""
        if self.snapshot is None or self.waiting:
            return bool(os.environ.get(ENV_STATE))
        return self.snapshot.simulated

    @property
    def told(self) -> bool:
        """Whether there is something wrong to say in a line of its own.

        Without a GPU the panel that stands in its place says what the sources could not do.
        """
        return bool(self.wrong and self.snapshot is not None) or bool(
            self.devices and self.snapshot is not None and self.snapshot.problems
        )

    @property
    def devices(self) -> Sequence[Device]:
        """Devices of the snapshot, none before the first."""
        return self.snapshot.devices if self.snapshot is not None else ()

    @property
    def stale(self) -> bool:
        """True when what is on screen is older than it should be; what is looked at on purpose is not."""
        late = self.status.state in ("not-answering", "stopped")
        return late and not self.waiting and self.paused_since is None

    @property
    def age(self) -> float:
        """Seconds since the snapshot on screen was taken."""
        if self.status.age_seconds is not None and self.paused_since is None:
            return self.status.age_seconds
        return max(0.0, self.now - self.snapshot.taken_at.timestamp()) if self.snapshot else 0.0


def ranked(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Errors and warnings by severity, then by the fixed order of causes; ``info`` and the past left out."""
    wrong = [finding for finding in findings if finding.severity != "info" and finding.until is None]
    wrong.sort(key=lambda f: (SEVERITY_ORDER[f.severity], _CAUSE_ORDER.get(f.id, len(_CAUSE_ORDER))))
    return tuple(wrong)
