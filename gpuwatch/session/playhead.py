"""The playhead: the moment of the recorded history that a paused display shows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import replace
from operator import sub

from gpuwatch.core.model.findings import Finding
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.metric_series import History
from gpuwatch.machine.history.sample_store import Kept, SampleStore
from gpuwatch.machine.history.timeline import LEVELS
from gpuwatch.session.event_track import EventTrack, from_round
from gpuwatch.session.view import PlayheadPosition, View, ranked

GRAPHED = frozenset(
    {
        "utilization.gpu_percent",
        "utilization.memory_percent",
        "memory.used_bytes",
        "power.draw_watts",
        "temperature.gpu_celsius",
        "clocks.sm_mhz",
    }
)
"""Device metrics with graphs."""
GRAPHED_SECONDS = 600.0
"""Maximum time span of graphs."""
_SPARSEST = LEVELS[-1][1]
"""Seconds between the oldest samples."""


class Navigation(ABC):
    """Moves in the time of a store, sample by sample, by seconds, or from event to event."""

    timeline: SampleStore
    """The samples; may become a store that goes back further."""

    @property
    @abstractmethod
    def moment(self) -> float | None:
        """Time of the sample on screen; None without one."""

    @abstractmethod
    def go(self, moment: float) -> None:
        """Moves to the last sample not later than ``moment``."""

    @abstractmethod
    def go_to_event(self, way: int, *, bad: bool, uuid: str | None = None) -> MachineEvent | None:
        """Moves to the next event (1) or the one before (-1), of errors and warnings alone if ``bad``.

        ``uuid``: of those alone that concern this GPU, or the whole machine. The event; None if there is none.
        """

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
        """Moves to the oldest sample."""
        times = self.timeline.times
        if times:
            self.go(times[0])

    def last(self) -> None:
        """Moves to the newest sample, which can be later than the start of the pause."""
        times = self.timeline.times
        if times:
            self.go(times[-1])


def begun_between(store: SampleStore, kept: Kept, moment: float) -> tuple[Finding, ...]:
    """What began after a sample and held at ``moment``, before the next one, which alone can say so.

    While a driver hangs there are no samples: the last one before says nothing of it.
    """
    times = store.times
    following = bisect_right(times, kept.at)
    if not kept.at < moment or following == len(times) or times[following] <= moment:
        return ()
    after = store.at(times[following])
    known = {(one.id, one.device_uuid, one.pid) for one in kept.findings} | {("healthy", None, None)}
    return tuple(
        one
        for one in (after.findings if after is not None else ())
        if (one.id, one.device_uuid, one.pid) not in known
        and one.since is not None
        and kept.at <= one.since.timestamp() <= moment
        and (one.until is None or one.until.timestamp() >= moment)
    )


def with_begun(findings: tuple[Finding, ...], begun: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings of a sample, and first what began after it: then not all is well."""
    return (*begun, *(one for one in findings if one.id != "healthy")) if begun else findings


class Playhead(Navigation):
    """The moment that is shown during a pause; it can be moved."""

    def __init__(self, live: View, timeline: SampleStore, ring: History, track: Callable[[], EventTrack]) -> None:
        """Starts at ``live``; nothing is decoded before it is moved. ``track``: gives all events so far."""
        self.timeline, self._track = timeline, track
        self._beyond: float | None = None
        """The moment that was gone to, if it is after the sample that is shown: of an event, or in a hang."""
        self._ring = ring
        taken = live.snapshot.taken_at.timestamp() if live.snapshot is not None else None
        history = ring.until(taken, GRAPHED) if taken is not None else ring
        self._view = replace(live, history=history, events=tuple(live.events), paused_since=live.now)
        self._newest = self._view

    @property
    def moment(self) -> float | None:
        """Time of the sample on screen; None without one."""
        return self._view.until

    def view(self, *, status: FeedStatus, now: float, unseen: int, asked: float, live: View | None = None) -> View:
        """What to show; ``live``: the current state, ``asked``: the interval between new samples in seconds."""
        position = None
        if self.moment is not None:
            times, stretches = self.timeline.times, self.timeline.stretches(3 * asked)
            begin, end = from_round(times[0], times[-1]), times[-1]
            moment = self._beyond if self._beyond is not None else self.moment
            position = PlayheadPosition(moment, begin, end, asked, stretches, self._track().drawn)
        return replace(self._view, status=status, now=now, unseen=unseen, past=position, live=live)

    def go(self, moment: float) -> None:
        """Moves to the last sample not later than ``moment``."""
        self._beyond = None
        if moment == self._newest.until:
            self._view = self._newest
            return
        kept = self.timeline.at(moment)
        if kept is None:
            return
        lasting = begun_between(self.timeline, kept, moment)
        self._beyond = moment if lasting else None
        findings = with_begun(kept.findings, lasting)
        self._view = replace(
            self._newest,
            snapshot=kept.snapshot,
            history=self._history(kept.at),
            interval=self._interval(kept.at),
            findings=findings,
            wrong=ranked(findings),
            until=kept.at,
            events=self._track().until(max(self._beyond or 0.0, kept.at + 0.5)),
        )

    def go_to_event(self, way: int, *, bad: bool, uuid: str | None = None) -> MachineEvent | None:
        """As in the base; the last sample not later than it is shown."""
        now = self._beyond if self._beyond is not None else self.moment
        times = self.timeline.times
        if now is None or not times:
            return None
        found = self._track().beside(max(now, times[0]) if way > 0 else now, way, bad=bad, uuid=uuid)
        if found is None or found.at < times[0]:  # its samples are not kept
            return None
        self.go(found.at)
        self._beyond = found.at
        self._view = replace(self._view, events=self._track().until(max(found.at, (self.moment or 0.0) + 0.5)))
        return found

    def _interval(self, moment: float) -> float:
        """Seconds between the samples around a moment; gaps without samples do not count."""
        times = self.timeline.times
        here = bisect_right(times, moment) - 1
        near = times[max(here - 3, 0) : here + 4]
        steps = sorted(map(sub, near[1:], near))
        apart = steps[len(steps) // 2] if steps else 0.0
        return max(self._newest.interval, apart if apart <= _SPARSEST else 0.0)

    def _history(self, moment: float) -> History:
        times = self._ring.times
        if times and (times[0] <= moment - GRAPHED_SECONDS or len(self.timeline.times) <= len(times)):
            return self._ring.until(moment, GRAPHED)
        history = self.timeline.history(moment, GRAPHED_SECONDS, GRAPHED)
        history.remember(self._ring)  # for the limits of the axes
        return history
