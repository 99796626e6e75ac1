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

from msgspec.structs import replace

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.explain.diagnosis.conditions.clock_event_episodes import ClockEventEpisodes
from gpuwatch.machine.history.abstract_sample_store import LazyTimes, SampleStore, TimedDecoder
from gpuwatch.machine.history.last_hour import MAX_EVENTS, THINNED_SECONDS, LastHour
from gpuwatch.machine.history.machine_event import MachineEvent, onset_key, still_lasting
from gpuwatch.machine.history.metric_history import History
from gpuwatch.machine.history.sample_frames import StoredSample
from gpuwatch.machine.history.sample_gaps import MAX_UNOBSERVED_SECONDS, join_spans
from gpuwatch.machine.recording.reader import Recording, open_recording
from gpuwatch.machine.recording.running_recorders import recordings_in_progress
from gpuwatch.session.playhead import GRAPHED, GRAPHED_SECONDS

_POLL_SECONDS = 0.5
"""Seconds between looks at a file that grows."""
_GAP_SEARCH_SECONDS = 5.0
"""Seconds between two looks for gaps in all of the recording."""
_THROTTLING_SECONDS = 3600.0
"""How far back it is looked for throttling."""
_MAX_DISTANCE = 2.5
"""A kept sample is used where the recording has none within so many seconds or intervals: the recorder did not run."""


class JoinedSamples(SampleStore):
    """The recording, and what was kept where it has gaps.

    Used by one thread. What was recorded is not thinned out, so it comes first.
    """

    thinned_spacing_seconds = THINNED_SECONDS

    def __init__(self, kept: LastHour, recording: Recording) -> None:
        self._kept = kept
        self.recording = recording
        self._near = _MAX_DISTANCE * max((run.interval for run in recording.sessions), default=1.0)
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
        self.lasting = still_lasting(self._earlier)
        """What the recorder saw to last when the first sample was taken here."""
        self.until = times[-1] if times else since
        """The time of the newest sample here when the recording was opened."""
        self._numbers = max((event.occurrence for event in self._earlier), default=0)
        """The numbers of occurrences that the recorder has used."""
        self._stretched = float("-inf")
        self._spans_without_gaps: list[tuple[float, float]] = []
        self._events: list[MachineEvent] = []
        self._last_event: tuple[int, MachineEvent | None] = (-1, None)

    @property
    def times(self) -> Sequence[float]:
        now = time.monotonic()
        if now - self._looked >= _POLL_SECONDS:
            self._looked = now
            self.recording.refresh()
        kept, recorded = self._kept.times, self.recording.times
        known = (len(recorded), self.recording.end, len(kept), kept[-1] if kept else None)
        if known != self._known:
            self._known = known
            first = bisect_left(recorded, kept[0]) if kept else len(recorded)
            newest = list(recorded[first:])
            near = self._near
            own = [at for at in kept if not _has_time_near(newest, at, near)]
            # The recording may have ended, or begun, shortly before the first of them.
            if own and first and own[0] - recorded[first - 1] <= near:
                own = [at for at in own if at - recorded[first - 1] > near]
            self._own = set(own)
            rest = sorted([*newest, *own])
            self._times = LazyTimes(
                lambda: first + len(rest), lambda place: recorded[place] if place < first else rest[place - first]
            )
        return self._times

    def spans_without_gaps(self, longer: float) -> Sequence[tuple[float, float]]:
        """Start and end of each time without a gap; updated every few seconds."""
        now = time.monotonic()
        if now - self._stretched >= _GAP_SEARCH_SECONDS:
            self._stretched = now
            longer = max(longer, self.thinned_spacing_seconds)
            every = [*self.recording.spans_without_gaps(longer), *((at, at) for at in self._own)]
            self._spans_without_gaps = join_spans(sorted(every), lambda begin: longer)
        return self._spans_without_gaps

    def at(self, moment: float) -> StoredSample | None:
        times = self.times
        if not times:
            return None
        here = times[max(bisect_right(times, moment) - 1, 0)]
        return self._kept.at(here) if here in self._own else self.recording.at(here)

    def chunks(self, begin: float, end: float) -> Iterator[Iterable[TimedDecoder]]:
        used = {at for at in self._own if begin <= at <= end} if self.times else ()  # they are brought up to date
        if not used:
            return self.recording.chunks(begin, end)
        own = (timed for timed in self._kept.decoders(begin, end) if timed[0] in used)
        return iter([heapq.merge(self.recording.decoders(begin, end), own, key=itemgetter(0))])

    def events(self) -> Sequence[MachineEvent]:
        kept = self._kept.events()
        last = (len(kept), kept[-1] if kept else None)
        if last[0] != self._last_event[0] or last[1] is not self._last_event[1]:
            self._last_event = last
            self._events = [*self._earlier, *self._continued(kept)]
        return self._events

    @property
    def repeated(self) -> int:
        """How many events of the dashboard the recorder had told before."""
        return len(self._earlier) + len(self._kept.events()) - len(self.events())

    def _continued(self, kept: Iterable[MachineEvent]) -> Iterator[MachineEvent]:
        """Events noticed here, without onsets that the recorder had already seen."""
        lasting = {onset_key(begun.onset): begun.onset for begun in self.lasting}
        numbers: dict[int, int] = {}
        for event in kept:
            if event.occurrence:
                key = onset_key(event)
                if key in lasting and (event.at if event.seen is None else event.seen) <= self.until:
                    numbers[event.occurrence] = lasting.pop(key).occurrence
                    continue
                number = numbers.setdefault(event.occurrence, event.occurrence + self._numbers)
                event = replace(event, occurrence=number)
            yield event

    @property
    def latest_events(self) -> Sequence[MachineEvent]:
        """As many of the newest events as a dashboard keeps without a recording."""
        return self.events()[-MAX_EVENTS:]


class Past(NamedTuple):
    """A recording of this machine, open for one session, and what is shown of it without looking back."""

    recording: Recording
    history: History
    episodes: ClockEventEpisodes
    episodes_since: float


def past_of_recording(recording: Recording) -> Past:
    """With what is read of it once. It has samples."""
    end = recording.end
    assert end is not None
    begin = max(recording.spans_without_gaps(MAX_UNOBSERVED_SECONDS)[-1][0], end - _THROTTLING_SECONDS)
    episodes = ClockEventEpisodes()
    for number, (at, devices) in enumerate(recording.devices(begin, end)):
        for device in devices:
            episodes.observe(device, at, first=not number)
    return Past(recording, recording.history(end, GRAPHED_SECONDS, GRAPHED), episodes, begin)


def open_past(known: Path | None) -> Past | None:
    """The recording of a recorder that runs on this machine; None without one, or if ``known`` is being written.

    Blocks while it is read, some tenths of a second for a month.
    """
    paths = recordings_in_progress()
    if known in paths:
        return None
    for path in paths:
        with suppress(GpuwatchError):
            recording = open_recording(path)
            recording.events()  # read once, here
            return past_of_recording(recording)
    return None


def _has_time_near(times: Sequence[float], at: float, near: float) -> bool:
    place = bisect_left(times, at)
    return any(abs(moment - at) <= near for moment in times[max(place - 1, 0) : place + 1])
