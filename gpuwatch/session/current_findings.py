"""Findings at a sample: judged live, or read from a recording."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from operator import is_
from typing import TYPE_CHECKING

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Device, Snapshot
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.history.machine_event import LastingCondition, MachineEvent

if TYPE_CHECKING:
    from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
    from gpuwatch.explain.diagnosis.conditions.throttling import ClockEventEpisode, ClockEventEpisodes
    from gpuwatch.machine.recording.reader import Recording


class FindingSource(ABC):
    """Judges the samples of a session, in the order in which they are shown."""

    @property
    def is_judging(self) -> bool:
        """Whether samples are judged as they come."""
        return True

    @property
    def event_count(self) -> int:
        return 0

    @property
    def silent_driver(self) -> Finding | None:
        return None

    @abstractmethod
    def judge_sample(self, snapshot: Snapshot, *, consecutive: bool) -> list[MachineEvent]:
        """Takes a sample; what happened. ``consecutive``: whether it is the one after the last."""

    @abstractmethod
    def throttling(self, uuid: str, since: float | None, until: float) -> list[ClockEventEpisode]:
        """Throttling episodes of a device, as known at the moment of a sample; the latest onset first.

        ``since``: how far back they are looked for, in seconds since the epoch; None: all that were seen.
        """

    def start_judging(self) -> list[MachineEvent]:
        """Judges what has been taken so far, and from now on every sample."""
        return []

    def prepend(self, lasting: Sequence[LastingCondition], until: float, episodes: ClockEventEpisodes) -> None:
        """As :meth:`.condition_engine.ConditionEngine.prepend`; nothing for recorded findings."""
        return

    def judge_feed(self, status: FeedStatus, now: float) -> list[MachineEvent]:
        """Looks at the collector and the driver."""
        return []

    def current_findings(self, given: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """The findings of now; ``given``: those that came with the newest sample."""
        return given


class LiveFindings(FindingSource):
    """The condition engine, which is imported when it is started: the rules are slow to import."""

    def __init__(self, conditions: ConditionEngine | None) -> None:
        self._conditions = conditions
        self._unjudged: list[Snapshot] = []
        self._recorded_past: tuple[Sequence[LastingCondition], float, ClockEventEpisodes] | None = None
        self._cached_findings: tuple[tuple[object, ...], tuple[Finding, ...]] | None = None

    @property
    def is_judging(self) -> bool:
        return self._conditions is not None

    @property
    def event_count(self) -> int:
        return self._conditions.count if self._conditions is not None else 0

    @property
    def silent_driver(self) -> Finding | None:
        return self._conditions.silence if self._conditions is not None else None

    def judge_sample(self, snapshot: Snapshot, *, consecutive: bool) -> list[MachineEvent]:
        if self._conditions is None:
            self._unjudged.append(snapshot)
            return []
        return self._conditions.observe(snapshot)

    def throttling(self, uuid: str, since: float | None, until: float) -> list[ClockEventEpisode]:
        return self._conditions.throttling(uuid, until) if self._conditions is not None else []

    def start_judging(self) -> list[MachineEvent]:
        if self._conditions is None:
            from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine

            self._conditions = ConditionEngine()
            if self._recorded_past is not None:
                self._conditions.prepend(*self._recorded_past)
        unjudged, self._unjudged = self._unjudged, []
        return [event for snapshot in unjudged for event in self._conditions.observe(snapshot)]

    def prepend(self, lasting: Sequence[LastingCondition], until: float, episodes: ClockEventEpisodes) -> None:
        self._recorded_past = lasting, until, episodes
        if self._conditions is not None:
            self._conditions.prepend(*self._recorded_past)

    def judge_feed(self, status: FeedStatus, now: float) -> list[MachineEvent]:
        judged: list[MachineEvent] = []
        if status.replacements or status.state == "not-answering":
            judged = self.start_judging()
        return judged + self._conditions.feed(status, now) if self._conditions is not None else judged

    def current_findings(self, given: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """Current findings, then past ones, newest first."""
        if self._conditions is None:
            return given
        found, past = self._conditions.findings, self._conditions.past
        parts = (given, found, len(past), past[-1] if past else None)
        if self._cached_findings is None or not all(map(is_, parts, self._cached_findings[0])):
            self._cached_findings = (parts, recorded_and_current_findings(given, self._conditions))
        return self._cached_findings[1]


class RecordedFindings(FindingSource):
    """The findings that samples were recorded with; throttling alone is found again, while a GPU is looked at."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._episodes: ClockEventEpisodes | None = None
        self._covered_span: tuple[float | None, float] = (None, float("-inf"))
        """Start and end of the time that ``_episodes`` covers."""

    def judge_sample(self, snapshot: Snapshot, *, consecutive: bool) -> list[MachineEvent]:
        if not consecutive:
            self._episodes = None
        if self._episodes is not None:
            self._covered_span = (self._covered_span[0], snapshot.taken_at.timestamp())
            self._observe_devices(self._covered_span[1], snapshot.devices)
        return []

    def throttling(self, uuid: str, since: float | None, until: float) -> list[ClockEventEpisode]:
        if self._episodes is None or self._covered_span != (since, until):
            from gpuwatch.explain.diagnosis.conditions.throttling import ClockEventEpisodes

            self._episodes, self._covered_span = ClockEventEpisodes(), (since, until)
            first = True
            for at, devices in self._recording.devices(since if since is not None else float("-inf"), until):
                self._observe_devices(at, devices, first=first)
                first = False
        return self._episodes.of_device(uuid, until)

    def _observe_devices(self, at: float, devices: Sequence[Device], *, first: bool = False) -> None:
        assert self._episodes is not None
        for device in devices:
            self._episodes.observe(device, at, first=first)


def recorded_and_current_findings(recorded: tuple[Finding, ...], conditions: ConditionEngine) -> tuple[Finding, ...]:
    """Findings that came with a snapshot, current ones, then past ones, newest first."""
    current = conditions.findings
    if any(finding.severity != "info" for finding in recorded):
        current = tuple(finding for finding in current if finding.id != "healthy")
    if recorded:  # another gpuwatch has judged the snapshot already, over a longer time
        recorded_keys = {finding.key for finding in recorded}
        current = tuple(finding for finding in current if finding.key not in recorded_keys)
    return (*recorded, *current, *reversed(conditions.past))
