"""A session over a recording: what the dashboard showed then, with the findings and events that were recorded."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.recorded_feed import SPEEDS, RecordedFeed, Skipped, gap_limit
from gpuwatch.machine.history.energy import EnergyMeter
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.sample_store import Kept
from gpuwatch.machine.recording.tiers import MINUTE
from gpuwatch.session.playhead import GRAPHED, GRAPHED_SECONDS, Navigation, begun_between, with_begun
from gpuwatch.session.process_history import ProcessHistories
from gpuwatch.session.session import Session, stepped
from gpuwatch.session.view import PlayheadPosition, ReplayState, Since, View

if TYPE_CHECKING:
    from gpuwatch.explain.diagnosis.conditions.throttling import ClockEpisodes, Episode

_MEMORY = "memory.used_bytes"
_SEARCHED = 86_400.0
"""Seconds before a jump in which the last readings of a lost device are looked for."""


class ReplaySession(Session, Navigation):
    """Plays a recording once started. A pause stops the feed, so that the view stands still; nothing is lost.

    Findings and events are the recorded ones: after a jump they are known at once, with their durations.
    """

    recorded = True

    def __init__(
        self,
        feed: RecordedFeed,
        moment: float | None = None,
        *,
        today: Callable[[], float] = time.time,
    ) -> None:
        """``feed``: of a recording that has samples. ``moment``: where to begin; None: at its beginning.

        ``today``: what time it is really.
        """
        super().__init__(feed, clock=feed.now, timeline=feed.recording, read_only=True)
        self._played, self._today = feed, today
        self._recording = feed.recording
        self._found_then: tuple[Finding, ...] = ()
        self._since = 0.0
        """When the first sample after the last jump was taken."""
        self._episodes: ClockEpisodes | None = None
        """Those of the last minutes before a jump and since; read when they are first asked for."""
        self._stretches: list[tuple[float, float]] | None = None
        """The recorded times, for the track; None if they have changed."""
        self.go(self.begin if moment is None else moment)
        self.resume()

    # The feed

    @property
    def speed(self) -> float:
        """Recorded seconds that are played in a second."""
        return self._played.speed

    def change_interval(self, step: int) -> None:
        """Plays faster (-1) or slower (1): the interval between recorded samples cannot change."""
        self._played.speed = stepped(SPEEDS, self.speed, -step)

    def take(self) -> list[Snapshot]:
        """As in the base; nothing is judged again."""
        arrived = self._played.take()
        for kept in arrived:
            newest = self.moment
            if newest is not None and kept.at < newest:  # the clock was set back while it was recorded
                self._begin_with(kept)
            else:
                self._add(kept)
        self.look_at_feed()
        return [kept.snapshot for kept in arrived]

    def _add(self, kept: Kept) -> None:
        if self._episodes is not None:
            for device in kept.snapshot.devices:
                self._episodes.look(device, kept.at, first=False)
        self._show(kept.snapshot)
        self._found_then = kept.findings

    def diagnose(self) -> None:
        """Nothing to do: the findings were recorded."""

    def look_at_feed(self) -> None:
        """Takes in what was recorded since, if somebody still records."""
        if self._recording.refresh():
            self._stretches = None

    def take_skipped(self) -> list[Skipped]:
        """As in the base."""
        return self._played.take_skipped()

    # Moving

    @property
    def moment(self) -> float | None:
        """As in the base."""
        return self.snapshot.taken_at.timestamp() if self.snapshot is not None else None

    def go(self, moment: float, *, within: bool = False) -> None:
        """Shows the last sample not later than ``moment``, and goes on from there.

        The clock shows ``moment`` itself unless it is in a gap of which nothing is known; ``within``: also there.
        """
        kept = self._recording.at(moment)
        if kept is None:
            return
        begun = begun_between(self._recording, kept, moment)
        following, limit = self._following(kept.at), gap_limit(self.feed.interval)
        damaged = following <= moment
        gap = moment > kept.at and (damaged or following - kept.at > limit) and moment <= self.end
        skipped = [Skipped(kept.at, moment if damaged else following, damaged)] if gap else []
        there = within or begun or not gap
        self._played.seek(kept.at, min(max(moment, kept.at), self.end) if there else kept.at, skipped)
        self._begin_with(kept)
        self._found_then = with_begun(self._found_then, begun)
        self._seen_events = self.event_count

    def _begin_with(self, kept: Kept) -> None:
        """Shows a sample that does not follow the last one."""
        self.history = self._recording.history(math.nextafter(kept.at, 0), GRAPHED_SECONDS, GRAPHED)
        self._remember_lost(kept)
        self._energy, self._process_histories, self._episodes = EnergyMeter(), ProcessHistories(), None
        self._since = kept.at
        self._add(kept)

    def _remember_lost(self, kept: Kept) -> None:
        """Finds what devices that no longer answer last had."""
        for device in kept.snapshot.devices:
            if _MEMORY not in device.readings and (last := self._last_answer(device.uuid, kept.at)) is not None:
                row = last.device(device.uuid)
                assert row is not None
                self.history.remember_lost(row, last.processes)

    def _last_answer(self, uuid: str, moment: float) -> Snapshot | None:
        """The last sample before a moment in which the memory of a device was read; None if that was long ago."""
        used = self.history.series(uuid, _MEMORY)
        times = list(self.history.times)[len(self.history.times) - len(used) :]
        answered = [at for at, value in zip(times, used, strict=True) if value is not None]
        if answered:
            begin = end = answered[-1]
        else:
            means = self._recording.summaries(MINUTE, moment - _SEARCHED, moment, frozenset({_MEMORY}))
            minutes = [minute for minute, points in means.items() if (uuid, _MEMORY) in points]
            if not minutes:
                return None
            begin, end = float(max(minutes)), float(max(minutes) + MINUTE)
        found = None
        for kept in self._recording.snapshots(begin, end):
            row = kept.snapshot.device(uuid)
            if row is not None and _MEMORY in row.readings:
                found = kept.snapshot
        return found

    def _following(self, at: float) -> float:
        """Time of the sample after one; infinity without one."""
        times = self._recording.times
        place = bisect_right(times, at)
        return times[place] if place < len(times) else math.inf

    def go_to_event(self, way: int, *, bad: bool, uuid: str | None = None) -> MachineEvent | None:
        """As in the base."""
        found = self.track.beside(self.clock(), way, bad=bad, uuid=uuid)
        if found is not None:
            self.go(found.at, within=True)
        return found

    @property
    def begin(self) -> float:
        """Time of the first sample."""
        return self._recording.begin or 0.0

    @property
    def end(self) -> float:
        """Time of the last sample."""
        return self._recording.end or 0.0

    @property
    def paused(self) -> bool:
        """Whether it stands still."""
        return self._played.paused

    def pause(self) -> Navigation:
        """Stands still; the view can then be moved in time."""
        self.take()  # what has been played is shown
        self._played.paused = True
        return self

    def resume(self) -> None:
        """Plays on."""
        self._stretches = None
        self._played.paused = False

    # What is shown

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The recorded findings."""
        return self._found_then

    @property
    def events(self) -> Sequence[MachineEvent]:
        """The events up to the moment that is played."""
        return self.track.until(self.clock())

    @property
    def event_count(self) -> int:
        """Number of recorded events up to the moment that is played."""
        return self.track.count(self.clock())

    def throttling(self, uuid: str, until: float) -> list[Episode]:
        """As in the base; those from before the last jump as far back as graphs go."""
        if self._episodes is None:
            from gpuwatch.explain.diagnosis.conditions.throttling import ClockEpisodes

            self._episodes = ClockEpisodes()
            known = self._recording.devices(self._looked_back, self.moment or -math.inf)
            for number, (at, devices) in enumerate(known):
                for device in devices:
                    self._episodes.look(device, at, first=not number)
        return self._episodes.of(uuid, until)

    @property
    def _looked_back(self) -> float:
        return max(self.begin, self._since - GRAPHED_SECONDS)

    def view(self) -> View:
        """The moment that is played."""
        view = self.live_view()
        now, end, today = view.now, self.end, self._today()
        limit = gap_limit(self.feed.interval)
        recording = abs(today - end) < limit
        since = Since(self.begin, self._looked_back, self._since)
        state = ReplayState(
            path=self._recording.path,
            moment=now,
            begin=self.begin,
            end=end,
            speed=self.speed,
            paused=self.paused,
            ended=self._played.ended and not recording,
            following=recording and end - now < limit,
            today=today,
        )
        if not self.paused:
            return replace(view, replay=state, since=since)
        return replace(view, replay=state, since=since, paused_since=now, past=self.position())

    def position(self) -> PlayheadPosition:
        """As in the base; of the whole recording."""
        if self._stretches is None:
            self._stretches = self._recording.stretches(gap_limit(self.feed.interval))
        moment = self.clock()
        return PlayheadPosition(moment, self.begin, self.end, self.feed.interval, self._stretches, self.track.drawn)
