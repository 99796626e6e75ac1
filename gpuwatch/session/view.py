"""What a front end draws at one moment, live or past: one immutable bundle per redraw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuwatch.model.findings import CAUSES, SEVERITY_ORDER, Finding
from gpuwatch.model.snapshot import Device, Host, Snapshot

if TYPE_CHECKING:
    from gpuwatch.history.machine_event import MachineEvent
    from gpuwatch.history.metric_series import History
    from gpuwatch.monitor.feed import FeedStatus

_LATE = 3.0
"""Seconds beyond the interval after which what is known of the host is old."""
_CAUSE_ORDER = {cause: rank for rank, cause in enumerate(CAUSES)}


@dataclass(frozen=True, slots=True, eq=False)
class PlayheadPosition:
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

    While the driver keeps the first one waiting, it has the host alone: see :attr:`waiting`.
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
    simulation_asked: bool = False
    """Whether simulated GPUs were asked for, which is known before their driver answers."""
    until: float | None = None
    """Where graphs end: the moment of the snapshot, which stands still while paused."""
    events: Sequence[MachineEvent] = ()
    """What happened, oldest first. While live the list goes on growing; of the past it is a copy."""
    unseen: int = 0
    """Events since the Events tab was looked at."""
    wrong: tuple[Finding, ...] = field(default=())
    """Errors and warnings, the most important first."""
    silence: Finding | None = None
    """The one of them that nothing answers: a front end that says so in words of its own does not count it."""
    troubled: float = float("-inf")
    """When something was wrong last, the feed included; seconds since the epoch."""
    live: View | None = None
    """What is now, while something else is shown."""
    past: PlayheadPosition | None = None
    """Where in the kept history this is; None: it is what is now."""

    @property
    def moment(self) -> float:
        """When the snapshot was taken, in seconds since the epoch; now where there is none."""
        return self.now if self.snapshot is None else self.snapshot.taken_at.timestamp()

    @property
    def waiting(self) -> bool:
        """Whether the driver has not answered yet: nothing is known of any GPU, not even whether there is one."""
        return self.snapshot is None or self.snapshot is self.status.machine

    @property
    def host(self) -> Host | None:
        """The machine around the GPUs: read just now also while the driver does not answer."""
        newest = self.snapshot
        if self.paused_since is None and self.status.machine is not None:
            newest = self.status.machine
        return newest.host if newest is not None else None

    @property
    def host_stale(self) -> bool:
        """True when :attr:`host` is older than it should be."""
        newest = self.status.machine if self.paused_since is None else None
        return self.stale if newest is None else self.now - newest.taken_at.timestamp() > self.interval + _LATE

    @property
    def simulated(self) -> bool:
        """Whether the GPUs are; before their driver has answered: :attr:`simulation_asked`."""
        if self.snapshot is None or self.waiting:
            return self.simulation_asked
        return self.snapshot.simulated

    @property
    def has_problem(self) -> bool:
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
