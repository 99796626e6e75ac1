"""The samples that a dashboard kept since it was started, and those of a recording of the same machine, as one past."""

from __future__ import annotations

import heapq
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.metric_series import History
from gpuwatch.machine.history.sample_store import Kept, Placed, SampleStore, Times
from gpuwatch.machine.history.timeline import EVENTS, THINNED, Timeline
from gpuwatch.machine.recording.reader import Recording, open_recording
from gpuwatch.machine.recording.running_recorders import recorded_now
from gpuwatch.session.playhead import GRAPHED, GRAPHED_SECONDS

_LOOK_EVERY = 0.5
"""Seconds between looks at a file that grows."""
_STRETCHES_EVERY = 5.0
"""Seconds between two looks for gaps in all of the recording."""
_NEAR = 2.5
"""A kept sample is used where the recording has none within so many seconds or intervals: the recorder did not run."""


class JoinedSamples(SampleStore):
    """The recording, and what was kept where it has gaps.

    Used by one thread. What was recorded is not thinned out, so it comes first.
    """

    apart = THINNED

    def __init__(self, kept: Timeline, recording: Recording) -> None:
        self._kept = kept
        self.recording = recording
        self._near = _NEAR * max((run.interval for run in recording.runs), default=1.0)
        self._looked = float("-inf")
        self._known: tuple[object, ...] = ()
        """What the times below were made of."""
        self._times: Sequence[float] = ()
        self._own: set[float] = set()
        """Times of the kept samples that are used."""
        times = kept.times
        since = times[0] if times else time.time()
        self._earlier = [event for event in recording.events() if event.at < since]
        """Events from before the dashboard was started: it notices later ones itself."""
        self._stretched = float("-inf")
        self._stretches: list[tuple[float, float]] = []
        self._events: list[MachineEvent] = []
        self._latest: list[MachineEvent] = []
        self._last_event: tuple[int, MachineEvent | None] = (-1, None)

    @property
    def times(self) -> Sequence[float]:
        now = time.monotonic()
        if now - self._looked >= _LOOK_EVERY:
            self._looked = now
            self.recording.refresh()
        kept, recorded = self._kept.times, self.recording.times
        known = (len(recorded), self.recording.end, len(kept), kept[-1] if kept else None)
        if known != self._known:
            self._known = known
            first = bisect_left(recorded, kept[0]) if kept else len(recorded)
            newest = list(recorded[first:])
            near = self._near
            own = [at for at in kept if not _has(newest, at, near)]
            # The recording may have ended, or begun, shortly before the first of them.
            if own and first and own[0] - recorded[first - 1] <= near:
                own = [at for at in own if at - recorded[first - 1] > near]
            self._own = set(own)
            rest = sorted([*newest, *own])
            self._times = Times(
                lambda: first + len(rest), lambda place: recorded[place] if place < first else rest[place - first]
            )
        return self._times

    def stretches(self, longer: float) -> Sequence[tuple[float, float]]:
        """As in the protocol; brought up to date every few seconds."""
        now = time.monotonic()
        if now - self._stretched >= _STRETCHES_EVERY:
            self._stretched = now
            longer = max(longer, self.apart)
            every = [*self.recording.stretches(longer), *((at, at) for at in self._own)]
            found: list[tuple[float, float]] = []
            for begin, end in sorted(every):
                if found and begin - found[-1][1] <= longer:
                    found[-1] = (found[-1][0], max(end, found[-1][1]))
                else:
                    found.append((begin, end))
            self._stretches = found
        return self._stretches

    def at(self, moment: float) -> Kept | None:
        times = self.times
        if not times:
            return None
        here = times[max(bisect_right(times, moment) - 1, 0)]
        return self._kept.at(here) if here in self._own else self.recording.at(here)

    def chunks(self, begin: float, end: float) -> Iterator[Iterable[Placed]]:
        used = {at for at in self._own if begin <= at <= end} if self.times else ()  # they are brought up to date
        if not used:
            return self.recording.chunks(begin, end)
        own = (placed for placed in self._kept.positions(begin, end) if placed[0] in used)
        return iter([heapq.merge(self.recording.positions(begin, end), own, key=itemgetter(0))])

    def events(self) -> Sequence[MachineEvent]:
        kept = self._kept.events()
        last = (len(kept), kept[-1] if kept else None)
        if last[0] != self._last_event[0] or last[1] is not self._last_event[1]:
            self._last_event = last
            self._events = [*self._earlier, *kept]
            self._latest = self._events[-EVENTS:]
        return self._events

    @property
    def latest_events(self) -> Sequence[MachineEvent]:
        """As many of the newest events as a dashboard keeps without a recording."""
        self.events()
        return self._latest


class Past(NamedTuple):
    """A recording of this machine, open for one session, and its last minutes for the graphs."""

    recording: Recording
    history: History


def open_past(known: Path | None) -> Past | None:
    """The recording of a recorder that runs on this machine; None without one, or if ``known`` is being written.

    Blocks while it is read, some tenths of a second for a month.
    """
    paths = recorded_now()
    if known in paths:
        return None
    for path in paths:
        with suppress(GpuwatchError):
            recording = open_recording(path)
            recording.events()  # read once, here
            assert recording.end is not None
            return Past(recording, recording.history(recording.end, GRAPHED_SECONDS, GRAPHED))
    return None


def _has(times: Sequence[float], at: float, near: float) -> bool:
    place = bisect_left(times, at)
    return any(abs(moment - at) <= near for moment in times[max(place - 1, 0) : place + 1])
