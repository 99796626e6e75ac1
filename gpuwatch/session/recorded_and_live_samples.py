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
from gpuwatch.explain.diagnosis.conditions.throttling import ClockEventEpisodes
from gpuwatch.machine.history.abstract_sample_store import LazyTimes, SampleStore, TimedDecoder
from gpuwatch.machine.history.last_hour import MAX_EVENTS, THINNED_SECONDS, LastHour
from gpuwatch.machine.history.machine_event import MachineEvent, onset_key, still_lasting
from gpuwatch.machine.history.metric_history import History
from gpuwatch.machine.history.sample_frames import StoredSample
from gpuwatch.machine.history.sample_gaps import MAX_UNOBSERVED_SECONDS, join_spans
from gpuwatch.machine.recording.reader import Recording, open_recording
from gpuwatch.machine.recording.running_recorders import recordings_in_progress
from gpuwatch.session.playhead import GRAPHED_METRICS, GRAPHED_SECONDS

_POLL_SECONDS = 0.5
"""Seconds between looks at a file that grows."""
_GAP_SEARCH_SECONDS = 5.0
"""Seconds between two looks for gaps in all of the recording."""
_THROTTLING_SECONDS = 3600.0
"""Seconds back for which throttling is read."""
_MAX_DISTANCE = 2.5
"""A kept sample is used where the recording has none within so many seconds or intervals: the recorder did not run."""


class JoinedSamples(SampleStore):
    """The recording, and what was kept where it has gaps.

    Used by one thread. What was recorded is not thinned out, so it comes first.
    """

    thinned_spacing_seconds = THINNED_SECONDS

    def __init__(self, kept: LastHour, recording: Recording) -> None:
        self._live = kept
        self.recording = recording
        self._max_distance = _MAX_DISTANCE * recording.interval
        self._refreshed_at = float("-inf")
        self._times_key: tuple[object, ...] = ()
        """What the times below were made of."""
        self._times: Sequence[float] = ()
        self._used_live_times: set[float] = set()
        """Times of the kept samples that are used."""
        times = kept.times
        since = times[0] if times else time.time()
        self._recorded_events = [event for event in recording.events() if event.at < since]
        """Events from before the dashboard was started: it notices later ones itself."""
        self.lasting = still_lasting(self._recorded_events)
        """What the recorder saw to last when the first sample was taken here."""
        self.until = times[-1] if times else since
        """The time of the newest sample here when the recording was opened."""
        self._recorded_occurrences = max((event.occurrence for event in self._recorded_events), default=0)
        """The numbers of occurrences that the recorder has used."""
        self._spans_updated_at = float("-inf")
        self._spans_without_gaps: list[tuple[float, float]] = []
        self._events: list[MachineEvent] = []
        self._events_key: tuple[int, MachineEvent | None] = (-1, None)

    @property
    def times(self) -> Sequence[float]:
        now = time.monotonic()
        if now - self._refreshed_at >= _POLL_SECONDS:
            self._refreshed_at = now
            self.recording.refresh()
        live, recorded_times = self._live.times, self.recording.times
        times_key = (len(recorded_times), self.recording.end, len(live), live[-1] if live else None)
        if times_key != self._times_key:
            self._times_key = times_key
            first_new = bisect_left(recorded_times, live[0]) if live else len(recorded_times)
            newest_recorded = list(recorded_times[first_new:])
            max_distance = self._max_distance
            used_live = [at for at in live if not _has_time_near(newest_recorded, at, max_distance)]
            # The recording may have ended, or begun, shortly before the first of them.
            if used_live and first_new and used_live[0] - recorded_times[first_new - 1] <= max_distance:
                used_live = [at for at in used_live if at - recorded_times[first_new - 1] > max_distance]
            self._used_live_times = set(used_live)
            merged_times = sorted([*newest_recorded, *used_live])
            self._times = LazyTimes(
                lambda: first_new + len(merged_times),
                lambda place: recorded_times[place] if place < first_new else merged_times[place - first_new],
            )
        return self._times

    def spans_without_gaps(self, min_gap_seconds: float) -> Sequence[tuple[float, float]]:
        """Begin and end of each time without a gap; updated every few seconds."""
        now = time.monotonic()
        if now - self._spans_updated_at >= _GAP_SEARCH_SECONDS:
            self._spans_updated_at = now
            min_gap_seconds = max(min_gap_seconds, self.thinned_spacing_seconds)
            all_spans = [
                *self.recording.spans_without_gaps(min_gap_seconds),
                *((at, at) for at in self._used_live_times),
            ]
            self._spans_without_gaps = join_spans(sorted(all_spans), lambda begin: min_gap_seconds)
        return self._spans_without_gaps

    def at(self, moment: float) -> StoredSample | None:
        times = self.times
        if not times:
            return None
        sampled_at = times[max(bisect_right(times, moment) - 1, 0)]
        return (self._live if sampled_at in self._used_live_times else self.recording).at(sampled_at)

    def chunks(self, begin: float, end: float) -> Iterator[Iterable[TimedDecoder]]:
        # Asking for the times brings those that are used up to date.
        used_times = {at for at in self._used_live_times if begin <= at <= end} if self.times else ()
        if not used_times:
            return self.recording.chunks(begin, end)
        live_samples = (timed for timed in self._live.decoders(begin, end) if timed[0] in used_times)
        return iter([heapq.merge(self.recording.decoders(begin, end), live_samples, key=itemgetter(0))])

    def events(self) -> Sequence[MachineEvent]:
        live_events = self._live.events()
        events_key = (len(live_events), live_events[-1] if live_events else None)
        if events_key[0] != self._events_key[0] or events_key[1] is not self._events_key[1]:
            self._events_key = events_key
            self._events = [*self._recorded_events, *self._continued(live_events)]
        return self._events

    @property
    def repeated_event_count(self) -> int:
        """How many events of the dashboard the recorder had told before."""
        return len(self._recorded_events) + len(self._live.events()) - len(self.events())

    def _continued(self, live_events: Iterable[MachineEvent]) -> Iterator[MachineEvent]:
        """Events noticed here, without onsets that the recorder had already seen."""
        recorded_onsets = {onset_key(begun.onset): begun.onset for begun in self.lasting}
        recorded_numbers: dict[int, int] = {}
        for event in live_events:
            if event.occurrence:
                key = onset_key(event)
                if key in recorded_onsets and (event.at if event.seen is None else event.seen) <= self.until:
                    recorded_numbers[event.occurrence] = recorded_onsets.pop(key).occurrence
                    continue
                number = recorded_numbers.setdefault(event.occurrence, event.occurrence + self._recorded_occurrences)
                event = replace(event, occurrence=number)
            yield event

    @property
    def latest_events(self) -> Sequence[MachineEvent]:
        """As many of the newest events as a dashboard keeps without a recording."""
        return self.events()[-MAX_EVENTS:]


class RecordedPast(NamedTuple):
    """A recording of this machine, open for one session, and what is shown of it without looking back."""

    recording: Recording
    history: History
    episodes: ClockEventEpisodes
    episodes_since: float


def read_past(recording: Recording) -> RecordedPast:
    """The past in a recording that has samples, with what is read of it only once."""
    end = recording.end
    assert end is not None
    begin = max(recording.spans_without_gaps(MAX_UNOBSERVED_SECONDS)[-1][0], end - _THROTTLING_SECONDS)
    episodes = ClockEventEpisodes()
    for number, (at, devices) in enumerate(recording.devices(begin, end)):
        for device in devices:
            episodes.observe(device, at, first=not number)
    return RecordedPast(recording, recording.history(end, GRAPHED_SECONDS, GRAPHED_METRICS), episodes, begin)


def open_past(own_path: Path | None) -> RecordedPast | None:
    """The recording of a recorder that runs on this machine; None without one, or if ``own_path`` is being written.

    Blocks while it is read, some tenths of a second for a month.
    """
    paths = recordings_in_progress()
    if own_path in paths:
        return None
    for path in paths:
        with suppress(GpuwatchError):
            recording = open_recording(path)
            recording.events()  # read once, here
            return read_past(recording)
    return None


def _has_time_near(times: Sequence[float], at: float, max_distance: float) -> bool:
    index = bisect_left(times, at)
    return any(abs(moment - at) <= max_distance for moment in times[max(index - 1, 0) : index + 1])
