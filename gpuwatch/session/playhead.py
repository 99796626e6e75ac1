"""The playhead: the moment that a paused display shows, of a recording or of what is kept of a live machine."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import replace
from math import nextafter
from operator import sub

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.recorded_period import GRAPHED as IN_REPORTS
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.history.abstract_sample_store import SampleStore
from gpuwatch.machine.history.last_hour import LEVELS
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.metric_history import History
from gpuwatch.machine.history.sample_frames import StoredSample
from gpuwatch.machine.history.sample_gaps import Gap
from gpuwatch.session.event_timeline import EventTrack
from gpuwatch.session.view import View, most_important_first

GRAPHED = frozenset({*IN_REPORTS, "utilization.memory_percent"})
"""Device metrics with graphs."""
GRAPHED_SECONDS = 600.0
"""Maximum time span of graphs."""
_MEMORY = "memory.used_bytes"
_MAX_SAMPLE_GAP_SECONDS = LEVELS[-1][1]
"""Seconds between the oldest samples."""


def begun_between(store: SampleStore, kept: StoredSample, moment: float) -> tuple[Finding, ...]:
    """What began after a sample and held at ``moment``, before the next one, which alone can say so.

    While a driver hangs there are no samples: the last one before says nothing of it.
    """
    times = store.times
    following = bisect_right(times, kept.at)
    if not kept.at < moment or following == len(times) or times[following] <= moment:
        return ()
    after = store.at(times[following])
    known = {finding.key for finding in kept.findings} | {("healthy", None, None)}
    return tuple(
        finding
        for finding in (after.findings if after is not None else ())
        if finding.key not in known
        and finding.since is not None
        and kept.at <= finding.since.timestamp() <= moment
        and (finding.until is None or finding.until.timestamp() >= moment)
    )


def graphs_of(store: SampleStore, snapshot: Snapshot, known: History | None = None) -> History:
    """The last minutes up to a sample of a store, and what its lost devices last had; ``known``: for axes."""
    at = snapshot.taken_at.timestamp()
    history = store.history(nextafter(at, 0), GRAPHED_SECONDS, GRAPHED)
    if known is not None:
        history.fall_back_to(known)
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
    if begin is None and (begin := store.last_minute(uuid, _MEMORY, moment)) is not None:
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
        ring: History,
        track: Callable[[], EventTrack],
        interval: Callable[[float], float] | None = None,
    ) -> None:
        """Starts at ``live``; nothing is decoded before it is moved.

        ``track``: gives all events so far. ``interval``: the seconds between samples around a moment, as recorded; by
        default what they are now, and what the samples themselves tell.
        """
        self.timeline = timeline
        """The samples; may become a store that goes back further."""
        self._track, self._ring, self._recorded = track, ring, interval
        taken = live.snapshot.taken_at.timestamp() if live.snapshot is not None else None
        self._beyond = live.position.moment if live.position is not None else None
        """The moment that was gone to, if it is after the sample that is shown."""
        self._gaps: list[Gap] = []
        history = ring.until(taken, GRAPHED) if taken is not None else ring
        self.view = replace(live, history=history, events=tuple(live.events), paused_since=live.now)
        self._newest = self.view
        self.in_hang = False
        """Whether something began here that only the next sample shows, such as a hang of the driver."""

    @property
    def moment(self) -> float | None:
        """Time of the sample on screen; None without one."""
        return self.view.graph_end

    @property
    def clock(self) -> float | None:
        """The moment on screen: that of the sample, or a later one before the next sample."""
        return self._beyond if self._beyond is not None else self.moment

    @property
    def moved(self) -> bool:
        """Whether it shows another moment than at the start."""
        return self.view is not self._newest

    def take_gaps(self) -> list[Gap]:
        """The gap that the last jump led to, once."""
        gaps, self._gaps = self._gaps, []
        return gaps

    def step(self, samples: int) -> None:
        """Moves by ``samples`` samples; negative: back."""
        times, moment = self.timeline.times, self.moment
        if not times or moment is None:
            return
        here = max(bisect_right(times, moment) - 1, 0)
        if samples < 0 and times[here] < moment:
            here += 1  # the sample itself was thinned out: the one before it is one step back
        self.go(times[min(max(here + samples, 0), len(times) - 1)])

    def jump(self, seconds: float) -> None:
        """Moves to the sample nearest to ``seconds`` from here, at least by one; negative: back."""
        times, moment = self.timeline.times, self.moment
        if not times or moment is None:
            return
        target = moment + seconds
        wanted = bisect_left(times, target)
        if 0 < wanted < len(times) and target - times[wanted - 1] < times[wanted] - target:
            wanted -= 1
        if seconds < 0:
            wanted = min(wanted, bisect_left(times, moment) - 1)
        else:
            wanted = max(wanted, bisect_right(times, moment))
        self.go(times[min(max(wanted, 0), len(times) - 1)])

    def first(self) -> None:
        times = self.timeline.times
        if times:
            self.go(times[0])

    def last(self) -> None:
        """Moves to the newest sample, which can be later than the start of the pause."""
        times = self.timeline.times
        if times:
            self.go(times[-1])

    def go(self, moment: float, *, within: bool = False) -> None:
        """Moves to the last sample not later than ``moment``.

        The clock shows ``moment`` itself unless it is in a gap of which nothing is known; ``within``: also there.
        """
        self._beyond, self._gaps, self.in_hang = None, [], False
        if moment == self._newest.graph_end:
            self.view = self._newest
            return
        kept = self.timeline.at(moment)
        if kept is None:
            return
        begun = begun_between(self.timeline, kept, moment)
        asked_interval = self._recorded(kept.at) if self._recorded is not None else self._newest.interval
        gap = self.timeline.gap(kept.at, moment, asked_interval)
        self.in_hang, self._gaps = bool(begun), [gap] if gap is not None else []
        if begun or within or gap is None:
            self._beyond = max(min(moment, self.timeline.times[-1]), kept.at)
        findings = kept.findings
        if begun:  # then not all is well
            findings = (*begun, *(finding for finding in findings if finding.id != "healthy"))
        self.view = replace(
            self._newest,
            snapshot=kept.snapshot,
            history=self._history(kept.snapshot),
            interval=self._interval(kept.at),
            findings=findings,
            errors_and_warnings=most_important_first(findings),
            graph_end=kept.at,
            events=self._track().until(max(self._beyond or 0.0, kept.at + 0.5)),
        )

    def go_to_event(self, way: int, *, bad: bool, uuid: str | None = None) -> MachineEvent | None:
        """Moves to the next event (1) or the one before (-1), of errors and warnings alone if ``bad``.

        ``uuid``: of those alone that concern this GPU, or the whole machine. The event; None if there is none.
        """
        now, times = self.clock, self.timeline.times
        if now is None or not times:
            return None
        found = self._track().beside(max(now, times[0]) if way > 0 else now, way, bad=bad, uuid=uuid)
        if found is None or found.at < times[0]:  # its samples are not kept
            return None
        self.go(found.at, within=True)
        return found

    def _interval(self, moment: float) -> float:
        """Seconds between the samples around a moment; gaps without samples do not count."""
        if self._recorded is not None:
            return self._recorded(moment)
        times = self.timeline.times
        here = bisect_right(times, moment) - 1
        near = times[max(here - 3, 0) : here + 4]
        steps = sorted(map(sub, near[1:], near))
        apart = steps[len(steps) // 2] if steps else 0.0
        return max(self._newest.interval, apart if apart <= _MAX_SAMPLE_GAP_SECONDS else 0.0)

    def _history(self, snapshot: Snapshot) -> History:
        times, moment = self._ring.times, snapshot.taken_at.timestamp()
        whole = times and (times[0] <= moment - GRAPHED_SECONDS or len(self.timeline.times) <= len(times))
        if whole and times[-1] >= moment:
            return self._ring.until(moment, GRAPHED)
        return graphs_of(self.timeline, snapshot, self._ring)
