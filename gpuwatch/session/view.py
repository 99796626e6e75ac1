"""What a front end draws at one moment, live or past: one immutable object per redraw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.findings import SEVERITY_ORDER, Finding
from gpuwatch.core.model.snapshot import Device, Host, Process, Snapshot

if TYPE_CHECKING:
    from gpuwatch.machine.collector.feed import FeedStatus
    from gpuwatch.machine.history.machine_event import MachineEvent
    from gpuwatch.machine.history.metric_history import History
    from gpuwatch.session.event_timeline import IncidentTrack

_LATE_SECONDS = 3.0
"""Seconds beyond the interval after which the host's readings are stale."""
_CAUSE_ORDER = {cause: rank for rank, cause in enumerate(CAUSES)}


class PlayedRecording(NamedTuple):
    """A recording that is played."""

    path: Path
    speed: float
    """Recorded seconds that are played in a second."""
    ended: bool
    """Whether it has been played to its end."""
    following: bool
    """Whether it shows what is recorded just now."""


@dataclass(frozen=True, slots=True, eq=False)
class PlayheadPosition:
    """The position of a display in what was recorded or kept. Times are seconds since the epoch."""

    moment: float
    begin: float
    """Where its timeline begins."""
    end: float
    """Time of the last sample."""
    interval: float
    """Seconds between new samples; older ones are further apart."""
    gapless: Sequence[tuple[float, float]]
    """Begin and end of each time without a gap, oldest first."""
    track: IncidentTrack
    viewers_time: float = 0.0
    """What time it is for who watches: other days are shown with their date."""
    played: PlayedRecording | None = None

    @property
    def share(self) -> float:
        """How much of its time has passed, from 0 to 1."""
        return (self.moment - self.begin) / (self.end - self.begin) if self.end > self.begin else 1.0


class KnownSince(NamedTuple):
    """From when on something is known, in seconds since the epoch; None: since gpuwatch started."""

    events: float | None = None
    throttling: float | None = None
    counted: float | None = None
    """What is counted, such as energy, and which events are new: since the last jump."""
    first: float | None = None
    """The first sample: what lasted then may have begun earlier. None: unknown."""


SINCE_START = KnownSince()


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A snapshot and its context. ``snapshot`` is None before the first one.

    While the driver has not answered yet, the snapshot contains only the host: see :attr:`waiting`.
    """

    snapshot: Snapshot | None
    history: History
    status: FeedStatus
    now: float
    interval: float
    """Seconds between the samples shown."""
    findings: tuple[Finding, ...] = ()
    paused_since: float | None = None
    read_only: bool = False
    simulation_asked: bool = False
    """Whether simulated GPUs were requested; known before their driver answers."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """By UUID, who has a GPU of which no processes are reported: ``used by alice``."""
    own_machine: bool = False
    """Whether this is the machine that the front end runs on, live: what starts here starts there."""
    graph_end: float | None = None
    """Right end of graphs: the time of the snapshot."""
    events: Sequence[MachineEvent] = ()
    """The events, oldest first; the live list grows."""
    unseen_events: int = 0
    """Number of events since the Events tab was last open."""
    errors_and_warnings: tuple[Finding, ...] = field(default=())
    """Errors and warnings, the most important first."""
    silent_driver: Finding | None = None
    """The finding that the driver does not answer: front ends that show this in another way do not count it."""
    last_problem_at: float = float("-inf")
    """When something was last wrong, the feed included; seconds since the epoch."""
    live: View | None = None
    """The live view, while another one is shown."""
    position: PlayheadPosition | None = None
    """The position in what was kept or recorded; None while live."""
    since: KnownSince = SINCE_START

    @property
    def moment(self) -> float:
        """Time of the snapshot, in seconds since the epoch; now without one."""
        return self.now if self.snapshot is None else self.snapshot.taken_at.timestamp()

    @property
    def played(self) -> PlayedRecording | None:
        """The recording that is played; None on a live machine."""
        return self.position.played if self.position is not None else None

    @property
    def waiting(self) -> bool:
        """Whether the driver has not answered yet: nothing is known about GPUs."""
        return self.snapshot is None or self.snapshot is self.status.machine

    @property
    def host(self) -> Host | None:
        """The host; up to date even if the driver does not answer."""
        newest = self.snapshot
        if self.paused_since is None and self.status.machine is not None:
            newest = self.status.machine
        return newest.host if newest is not None else None

    @property
    def host_stale(self) -> bool:
        """Whether :attr:`host` is older than it should be."""
        newest = self.status.machine if self.paused_since is None else None
        return self.stale if newest is None else self.now - newest.taken_at.timestamp() > self.interval + _LATE_SECONDS

    @property
    def simulated(self) -> bool:
        """Whether the GPUs are simulated; :attr:`simulation_asked` before their driver has answered."""
        if self.snapshot is None or self.waiting:
            return self.simulation_asked
        return self.snapshot.simulated

    @property
    def has_problem(self) -> bool:
        """Whether a line for problems is needed: not if the panel in the place of the GPUs has the same advice."""
        if self.snapshot is None:
            return False
        if self.devices:
            return bool(self.errors_and_warnings or self.snapshot.problems)
        hints = {problem.reason: problem.hint for problem in self.snapshot.problems}
        return not all(
            finding.id in hints and hints[finding.id].startswith(finding.action or "")
            for finding in self.errors_and_warnings
        )

    @property
    def devices(self) -> Sequence[Device]:
        return self.snapshot.devices if self.snapshot is not None else ()

    @property
    def processes(self) -> Sequence[Process]:
        return self.snapshot.processes if self.snapshot is not None else ()

    def device(self, uuid: str | None) -> Device | None:
        return self.snapshot.device(uuid) if self.snapshot is not None else None

    @property
    def stale(self) -> bool:
        """Whether a live snapshot is older than it should be."""
        late = self.status.state in ("not-answering", "stopped")
        return late and not self.waiting and self.paused_since is None

    @property
    def age(self) -> float:
        """Age of the snapshot on screen in seconds."""
        if self.status.age_seconds is not None and self.paused_since is None:
            return self.status.age_seconds
        return max(0.0, self.now - self.snapshot.taken_at.timestamp()) if self.snapshot else 0.0


def most_important_first(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Current errors and warnings by severity, then by the order of causes."""
    wrong = [finding for finding in findings if finding.severity != "info" and finding.until is None]
    wrong.sort(key=lambda f: (SEVERITY_ORDER[f.severity], _CAUSE_ORDER.get(f.id, len(_CAUSE_ORDER))))
    return tuple(wrong)
