"""What happened, on a clock: marks of a moment and incidents that lasted. The dashboard and reports draw the same."""

from __future__ import annotations

import datetime
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuwatch.machine.history.last_hour import MAX_EVENTS
from gpuwatch.machine.history.machine_event import MachineEvent

if TYPE_CHECKING:
    from gpuwatch.core.model.recorded_period import Period

SEVERITY_SIGNS = {"warning": "▲", "error": "✖"}
"""How what was wrong is marked, by severity, the worst last."""
PROBLEM_SEVERITIES = tuple(SEVERITY_SIGNS)
"""Severities of events that are marked, and that n and N step through."""
SPANS_SECONDS = (300.0, 600.0, 1800.0, 3600.0)
"""Seconds that a timeline shows while less than an hour is kept."""
_CLOCK_SET_BACK_SECONDS = 60.0
"""Seconds by which an event is earlier than the one before it if the clock was set back."""
_SAME_TIME_SECONDS = 1e-6
"""Seconds: events that are not further apart happened at once."""
_TICK_SECONDS = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800),
    *(604_800, 2_592_000),
)
"""Seconds between two times that are written on a clock."""


@dataclass(frozen=True, slots=True)
class Incident:
    """An event with start and end, in seconds since the epoch; a mark if both are equal."""

    begin: float
    end: float
    severity: str
    text: str
    uuids: tuple[str, ...] = ()
    """The GPUs that it concerns; empty: the whole machine."""


@dataclass(frozen=True, slots=True)
class IncidentTrack:
    """Marks and incidents to draw on a time axis, each sorted by time."""

    marks: Sequence[Incident] = ()
    incidents: Sequence[Incident] = ()

    def of_gpu(self, uuid: str | None) -> IncidentTrack:
        """What concerns one GPU, or the whole machine; None: everything."""
        if uuid is None:
            return self
        return IncidentTrack(
            [mark for mark in self.marks if not mark.uuids or uuid in mark.uuids],
            [incident for incident in self.incidents if not incident.uuids or uuid in incident.uuids],
        )

    def incident_at(self, moment: float) -> Incident | None:
        """The incident at a moment: of several the worst, then the latest."""
        lasting = [incident for incident in self.incidents if incident.begin <= moment <= incident.end]
        return max(
            lasting, key=lambda incident: (PROBLEM_SEVERITIES.index(incident.severity), incident.begin), default=None
        )


class EventIndex:
    """All events of a past: how many there are up to a moment, which, and which one is next."""

    def __init__(self) -> None:
        self.incidents = IncidentTrack()
        """What a timeline shows of them."""
        self._events: list[MachineEvent] = []
        """Those that a clock which was set back did not make again, in the order of recording."""
        self._latest: list[float] = []
        """The latest time of each event and those before it."""
        self._ends: tuple[int, MachineEvent, MachineEvent] | None = None

    def update(self, events: Sequence[MachineEvent]) -> None:
        """Brings it up to date with all events, in the order of recording."""
        first_and_last = (len(events), events[0], events[-1]) if events else None
        if first_and_last == self._ends:
            return
        self._ends, self._events, self._latest = first_and_last, [], []
        for event in events:
            if self._latest and event.at < self._latest[-1] - _CLOCK_SET_BACK_SECONDS:
                while self._events and self._events[-1].at >= event.at:
                    self._events.pop()
                    self._latest.pop()
            self._events.append(event)
            self._latest.append(max(event.at, self._latest[-1]) if self._latest else event.at)
        self.incidents = incidents_of_events(self._events)

    def count(self, moment: float) -> int:
        """Number of events up to a moment."""
        return bisect_right(self._latest, moment)

    def until(self, moment: float) -> Sequence[MachineEvent]:
        """The latest events up to a moment, as many as a dashboard keeps."""
        count = self.count(moment)
        return self._events[max(count - MAX_EVENTS, 0) : count]

    def nearest_event(
        self, moment: float, direction: int, *, only_problems: bool, uuid: str | None = None
    ) -> MachineEvent | None:
        """The event after (1) or before (-1) a moment; ``only_problems``: of errors and warnings alone.

        ``uuid``: of those alone that concern this GPU, or the whole machine.
        """
        for event in self._events if direction > 0 else reversed(self._events):
            distance = event.at - moment if direction > 0 else moment - event.at
            is_chosen = uuid is None or not event.device_uuid or uuid in event.all_device_uuids
            is_chosen = is_chosen and (not only_problems or event.severity in PROBLEM_SEVERITIES)
            if is_chosen and distance > _SAME_TIME_SECONDS:
                return event
        return None


def incidents_of_events(events: Iterable[MachineEvent]) -> IncidentTrack:
    """The track of a dashboard: an incident lasts from when it was first seen to the last time."""
    marks: list[Incident] = []
    incidents: list[Incident] = []
    index_of_lasting: dict[object, int] = {}
    for event in events:
        seen_at, is_problem = event.at if event.seen is None else event.seen, event.severity in PROBLEM_SEVERITIES
        if is_problem:
            marks.append(Incident(event.at, event.at, event.severity, event.text, event.all_device_uuids))
        name, _, phase = event.kind.rpartition(".")
        occurrence_key = (name, event.occurrence)
        if phase == "began" and is_problem:
            index_of_lasting[occurrence_key] = len(incidents)
            incidents.append(Incident(seen_at, math.inf, event.severity, event.text, event.all_device_uuids))
        elif phase == "changed" and is_problem and occurrence_key in index_of_lasting:
            incident = incidents[index_of_lasting[occurrence_key]]
            worst_severity = max(event.severity, incident.severity, key=PROBLEM_SEVERITIES.index)
            incidents[index_of_lasting[occurrence_key]] = replace(incident, severity=worst_severity)
        elif phase == "ended" and occurrence_key in index_of_lasting:
            index = index_of_lasting.pop(occurrence_key)
            incidents[index] = replace(incidents[index], end=seen_at)
        elif event.kind == "recording.began":  # what lasted when the recorder ended is judged, and told, again
            for index in index_of_lasting.values():
                incidents[index] = replace(incidents[index], end=event.at)
            index_of_lasting.clear()
    return IncidentTrack(marks, incidents)


def incidents_of_period(period: Period) -> IncidentTrack:
    """The track of a report; processes have bars of their own."""
    marks = [
        Incident(event.at.timestamp(), event.at.timestamp(), event.severity, event.text, event.device_uuids)
        for event in period.events
        if not event.kind.startswith("process.")
    ]
    incidents = [
        Incident(
            begin=finding.begin.timestamp(),
            end=finding.end.timestamp(),
            severity=finding.finding.severity,
            text=finding.finding.title,
            uuids=(finding.finding.device_uuid,) if finding.finding.device_uuid else (),
        )
        for finding in period.findings
        if finding.finding.severity in PROBLEM_SEVERITIES
    ]
    return IncidentTrack(marks, incidents)


def rounded_begin(begin: float, end: float) -> float:
    """Where a timeline begins, so that its scale stands still while it grows."""
    return min(begin, end - next((span for span in SPANS_SECONDS if span >= end - begin), 0.0))


def clock_ticks(begin: float, end: float, max_ticks: int) -> Iterator[tuple[float, str]]:
    """At most so many round times of a clock in local time, and how each is written."""
    seconds = end - begin
    tick_seconds = next((tick for tick in _TICK_SECONDS if seconds / tick <= max_ticks), _TICK_SECONDS[-1])
    offset = (datetime.datetime.fromtimestamp(begin).astimezone().utcoffset() or datetime.timedelta()).total_seconds()
    time_format = "%m-%d %H:%M" if seconds > 86_400 else "%H:%M" if tick_seconds >= 60 else "%H:%M:%S"
    for tick in range(math.ceil((begin + offset) / tick_seconds), math.floor((end + offset) / tick_seconds) + 1):
        at = tick * tick_seconds - offset
        yield at, datetime.datetime.fromtimestamp(at).strftime(time_format)
