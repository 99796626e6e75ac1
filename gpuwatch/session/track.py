"""What happened, on a clock: marks of a moment and incidents that lasted. The dashboard and reports draw the same."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpuwatch.core.model.period import Period
from gpuwatch.machine.history.machine_event import MachineEvent

TROUBLE = ("error", "warning")
"""Severities of the events that are marked, and that can be gone to one by one."""
_ROUND = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800),
    *(604_800, 2_592_000),
)
"""Seconds between two times that are written on a clock."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at one moment. Times are seconds since the epoch."""

    at: float
    severity: str
    text: str
    uuids: tuple[str, ...] = ()
    """The GPUs that it concerns; empty: the whole machine."""


@dataclass(frozen=True, slots=True)
class Incident:
    """An error or a warning, from its onset to its end."""

    begin: float
    end: float
    severity: str
    text: str
    uuids: tuple[str, ...] = ()
    """As those of a mark."""


@dataclass(frozen=True, slots=True)
class Track:
    """What is drawn along a clock, each kind by time."""

    marks: Sequence[Mark] = ()
    incidents: Sequence[Incident] = ()

    def on(self, uuid: str | None) -> Track:
        """What concerns one GPU, or the whole machine; None: everything."""
        if uuid is None:
            return self
        return Track(
            [one for one in self.marks if not one.uuids or uuid in one.uuids],
            [one for one in self.incidents if not one.uuids or uuid in one.uuids],
        )

    def around(self, moment: float) -> Incident | None:
        """The incident at a moment: of several the worst, then the latest."""
        there = [one for one in self.incidents if one.begin <= moment <= one.end]
        return max(there, key=lambda one: (one.severity == TROUBLE[0], one.begin), default=None)


def of_events(events: Iterable[MachineEvent]) -> Track:
    """The track of a dashboard: an incident is as long as the events of one occurrence are apart."""
    marks: list[Mark] = []
    incidents: list[Incident] = []
    lasting: dict[object, int] = {}
    for one in events:
        uuids = one.device_uuids or ((one.device_uuid,) if one.device_uuid else ())
        bad = one.severity in TROUBLE
        if bad:
            marks.append(Mark(one.at, one.severity, one.text, uuids))
        name, _, phase = one.kind.rpartition(".")
        which = (name, one.occurrence)
        if phase == "began" and bad:
            lasting[which] = len(incidents)
            incidents.append(Incident(one.at, math.inf, one.severity, one.text, uuids))
        elif phase == "changed" and bad and which in lasting:
            known = incidents[lasting[which]]
            worst = TROUBLE[0] if TROUBLE[0] in (one.severity, known.severity) else known.severity
            incidents[lasting[which]] = replace(known, severity=worst)
        elif phase == "ended" and which in lasting:
            place = lasting.pop(which)
            incidents[place] = replace(incidents[place], end=one.at)
        elif one.kind == "recording.began":  # what lasted when the recorder ended is judged, and told, again
            for place in lasting.values():
                incidents[place] = replace(incidents[place], end=one.at)
            lasting.clear()
    return Track(marks, incidents)


def of_period(period: Period) -> Track:
    """The track of a report; processes have bars of their own."""
    marks = [
        Mark(one.at.timestamp(), one.severity, one.text, one.device_uuids)
        for one in period.events
        if not one.kind.startswith("process.")
    ]
    incidents = [
        Incident(
            begin=one.begin.timestamp(),
            end=one.end.timestamp(),
            severity=one.finding.severity,
            text=one.finding.title,
            uuids=(one.finding.device_uuid,) if one.finding.device_uuid else (),
        )
        for one in period.findings
        if one.finding.severity in TROUBLE
    ]
    return Track(marks, incidents)


def round_times(begin: float, end: float, most: int) -> Iterator[tuple[float, str]]:
    """At most so many round times of a clock in local time, and how each is written."""
    seconds = end - begin
    step = next((one for one in _ROUND if seconds / one <= most), _ROUND[-1])
    offset = (datetime.datetime.fromtimestamp(begin).astimezone().utcoffset() or datetime.timedelta()).total_seconds()
    shape = "%m-%d %H:%M" if seconds > 86_400 else "%H:%M" if step >= 60 else "%H:%M:%S"
    for number in range(math.ceil((begin + offset) / step), math.floor((end + offset) / step) + 1):
        at = number * step - offset
        yield at, datetime.datetime.fromtimestamp(at).strftime(shape)
