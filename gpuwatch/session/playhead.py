"""The playhead: the moment that a paused display shows, of a recording or of what is kept of a live machine."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import replace
from math import nextafter
from operator import sub

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.recorded_period import GRAPHED
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.history.abstract_sample_store import SampleStore
from gpuwatch.machine.history.last_hour import LEVELS
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.metric_history import History
from gpuwatch.machine.history.sample_frames import StoredSample
from gpuwatch.machine.history.sample_gaps import Gap
from gpuwatch.session.event_timeline import EventIndex
from gpuwatch.session.view import View, most_important_first

GRAPHED_METRICS = frozenset({*GRAPHED, "utilization.memory_percent"})
"""Device metrics with graphs in the dashboard: those of reports, and one more."""
GRAPHED_SECONDS = 600.0
"""Maximum time span of graphs."""
_MEMORY = "memory.used_bytes"
_MAX_SAMPLE_GAP_SECONDS = LEVELS[-1][1]
"""Seconds between the oldest samples."""


def onsets_between(store: SampleStore, sample: StoredSample, moment: float) -> tuple[Finding, ...]:
    """What began after a sample and held at ``moment``, before the next one, which alone can say so.

    While a driver hangs there are no samples: the last one before says nothing of it.
    """
    times = store.times
    next_index = bisect_right(times, sample.at)
    if not sample.at < moment or next_index == len(times) or times[next_index] <= moment:
        return ()
    next_sample = store.at(times[next_index])
    known_keys = {finding.key for finding in sample.findings} | {("healthy", None, None)}
    return tuple(
        finding
        for finding in (next_sample.findings if next_sample is not None else ())
        if finding.key not in known_keys
        and finding.since is not None
        and sample.at <= finding.since.timestamp() <= moment
        and (finding.until is None or finding.until.timestamp() >= moment)
    )


def history_up_to(store: SampleStore, snapshot: Snapshot, axis_history: History | None = None) -> History:
    """The last minutes up to a sample of a store, and what its lost devices last had; ``axis_history``: for axes."""
    at = snapshot.taken_at.timestamp()
    history = store.history(nextafter(at, 0), GRAPHED_SECONDS, GRAPHED_METRICS)
    if axis_history is not None:
        history.fall_back_to(axis_history)
    for device in snapshot.devices:
        if _MEMORY not in device.readings and (last := _last_answer(store, history, device.uuid, at)) is not None:
            row = last.device(device.uuid)
            assert row is not None
            history.remember_lost(row, last.processes)
    history.add(snapshot)
    return history


def _last_answer(store: SampleStore, history: History, uuid: str, moment: float) -> Snapshot | None:
    """The last sample before a moment in which the memory of a device was read; None if that was long ago."""
    used = history.series(uuid, _MEMORY)
    times = list(history.times)[len(history.times) - len(used) :]
    answered = [at for at, value in zip(times, used, strict=True) if value is not None]
    begin = end = answered[-1] if answered else None
    if begin is None and (begin := store.last_minute_with_mean(uuid, _MEMORY, moment)) is not None:
        end = begin + 60.0
    if begin is None or end is None:
        return None
    found = None
    for kept in store.snapshots(begin, end):
        row = kept.snapshot.device(uuid)
        if row is not None and _MEMORY in row.readings:
            found = kept.snapshot
    return found


class Playhead:
    """The moment of a store that is shown during a pause. It moves by samples, by seconds, or from event to event."""

    def __init__(
        self,
        live: View,
        timeline: SampleStore,
        live_history: History,
        event_index: Callable[[], EventIndex],
        interval: Callable[[float], float] | None = None,
    ) -> None:
        """Starts at ``live``; nothing is decoded before it is moved.

        ``event_index``: gives the index of all events so far. ``interval``: the seconds between samples around a
        moment, as recorded; by default what they are now, and what the samples themselves tell.
        """
        self.timeline = timeline
        """The samples; may become a store that goes back further."""
        self._event_index, self._live_history, self._recorded_interval = event_index, live_history, interval
        snapshot_time = live.snapshot.taken_at.timestamp() if live.snapshot is not None else None
        self._moment_after_sample = live.position.moment if live.position is not None else None
        """The moment that was gone to, if it is after the sample that is shown."""
        self._gaps: list[Gap] = []
        history = live_history.until(snapshot_time, GRAPHED_METRICS) if snapshot_time is not None else live_history
        self.view = replace(live, history=history, events=tuple(live.events), paused_since=live.now)
        self._view_at_start = self.view
        self.in_unfinished_change = False
        """Whether something began here that only the next sample shows, such as a hang of the driver."""

    @property
    def moment(self) -> float | None:
        """Time of the sample on screen; None without one."""
        return self.view.graph_end

    @property
    def shown_time(self) -> float | None:
        """The moment on screen: that of the sample, or a later one before the next sample."""
        return self._moment_after_sample if self._moment_after_sample is not None else self.moment

    @property
    def has_moved(self) -> bool:
        """Whether it shows another moment than at the start."""
        return self.view is not self._view_at_start

    def take_gaps(self) -> list[Gap]:
        """The gap that the last jump led to, once."""
        gaps, self._gaps = self._gaps, []
        return gaps

    def move_samples(self, samples: int) -> None:
        """Moves by ``samples`` samples; negative: back."""
        times, moment = self.timeline.times, self.moment
        if not times or moment is None:
            return
        index = max(bisect_right(times, moment) - 1, 0)
        if samples < 0 and times[index] < moment:
            index += 1  # the sample itself was thinned out: the one before it is one step back
        self.move_to(times[min(max(index + samples, 0), len(times) - 1)])

    def move_seconds(self, seconds: float) -> None:
        """Moves to the sample nearest to ``seconds`` from here, at least by one; negative: back."""
        times, moment = self.timeline.times, self.moment
        if not times or moment is None:
            return
        target = moment + seconds
        index = bisect_left(times, target)
        if 0 < index < len(times) and target - times[index - 1] < times[index] - target:
            index -= 1
        if seconds < 0:
            index = min(index, bisect_left(times, moment) - 1)
        else:
            index = max(index, bisect_right(times, moment))
        self.move_to(times[min(max(index, 0), len(times) - 1)])

    def move_to_first(self) -> None:
        times = self.timeline.times
        if times:
            self.move_to(times[0])

    def move_to_last(self) -> None:
        """Moves to the newest sample, which can be later than the start of the pause."""
        times = self.timeline.times
        if times:
            self.move_to(times[-1])

    def move_to(self, moment: float, *, inside_gaps: bool = False) -> None:
        """Moves to the last sample not later than ``moment``.

        The clock shows ``moment`` itself unless it is in a gap of which nothing is known; ``inside_gaps``: also there.
        """
        self._moment_after_sample, self._gaps, self.in_unfinished_change = None, [], False
        if moment == self._view_at_start.graph_end:
            self.view = self._view_at_start
            return
        sample = self.timeline.at(moment)
        if sample is None:
            return
        onsets = onsets_between(self.timeline, sample, moment)
        expected_interval = (
            self._recorded_interval(sample.at) if self._recorded_interval is not None else self._view_at_start.interval
        )
        gap = self.timeline.gap(sample.at, moment, expected_interval)
        self.in_unfinished_change, self._gaps = bool(onsets), [gap] if gap is not None else []
        if onsets or inside_gaps or gap is None:
            self._moment_after_sample = max(min(moment, self.timeline.times[-1]), sample.at)
        findings = sample.findings
        if onsets:  # then not all is well
            findings = (*onsets, *(finding for finding in findings if finding.id != "healthy"))
        self.view = replace(
            self._view_at_start,
            snapshot=sample.snapshot,
            history=self._history(sample.snapshot),
            interval=self._interval(sample.at),
            findings=findings,
            errors_and_warnings=most_important_first(findings),
            graph_end=sample.at,
            events=self._event_index().until(max(self._moment_after_sample or 0.0, sample.at + 0.5)),
        )

    def move_to_event(self, direction: int, *, only_problems: bool, uuid: str | None = None) -> MachineEvent | None:
        """Moves to the next event (1) or the one before (-1), of errors and warnings alone if ``only_problems``.

        ``uuid``: of those alone that concern this GPU, or the whole machine. The event; None if there is none.
        """
        shown_time, times = self.shown_time, self.timeline.times
        if shown_time is None or not times:
            return None
        event = self._event_index().nearest_event(
            max(shown_time, times[0]) if direction > 0 else shown_time,
            direction,
            only_problems=only_problems,
            uuid=uuid,
        )
        if event is None or event.at < times[0]:  # its samples are not kept
            return None
        self.move_to(event.at, inside_gaps=True)
        return event

    def _interval(self, moment: float) -> float:
        """Seconds between the samples around a moment; gaps without samples do not count."""
        if self._recorded_interval is not None:
            return self._recorded_interval(moment)
        times = self.timeline.times
        index = bisect_right(times, moment) - 1
        nearby_times = times[max(index - 3, 0) : index + 4]
        intervals = sorted(map(sub, nearby_times[1:], nearby_times))
        median_interval = intervals[len(intervals) // 2] if intervals else 0.0
        return max(self._view_at_start.interval, median_interval if median_interval <= _MAX_SAMPLE_GAP_SECONDS else 0.0)

    def _history(self, snapshot: Snapshot) -> History:
        times, moment = self._live_history.times, snapshot.taken_at.timestamp()
        live_covers = times and (times[0] <= moment - GRAPHED_SECONDS or len(self.timeline.times) <= len(times))
        if live_covers and times[-1] >= moment:
            return self._live_history.until(moment, GRAPHED_METRICS)
        return history_up_to(self.timeline, snapshot, self._live_history)
