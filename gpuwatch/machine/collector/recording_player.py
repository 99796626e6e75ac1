"""A feed that plays a recording: its samples at the pace at which they were taken, or a multiple of it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.collector.host_processes import HostProcesses
from gpuwatch.machine.history.sample_frames import StoredSample
from gpuwatch.machine.history.sample_gaps import Gap, gap_limit
from gpuwatch.machine.recording.reader import Recording

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Multiples of the recorded pace that a front end offers."""
_MIN_WAKE_SECONDS = 0.2
"""Minimum seconds between two wake-ups, however fast it plays."""
_POLL_SECONDS = 0.5
"""Seconds between looks at a file that has been played to its end and may grow."""
_CLOCK_SET_BACK_SECONDS = 1.0
"""Seconds by which the clock was set back at least if samples get earlier."""
_MAX_LATE_SECONDS = 1.0
"""Seconds that playing may be behind, as after a suspend, before it goes on from where it is."""


class RecordingPlayer:
    """Plays a recording from a moment on; at its end it waits for more.

    A :class:`~gpuwatch.machine.collector.feed.Feed`, used by one thread: samples are read when they are
    taken. Another thread only wakes the front end when something is due. Times are seconds since the epoch.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        speed: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """``recording``: the caller closes it. ``clock``: seconds by which to play. ``wall_clock``: the time now."""
        self.recording = recording
        self.wall_clock = wall_clock
        self._clock = clock
        self._sessions = recording.sessions
        name = self._sessions[-1].hostname or "" if self._sessions else ""
        self.host = HostProcesses(name, unreachable="not part of a recording")  # perhaps this one, at another time
        self._alarm = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wake_due = math.inf
        """When the front end is to be woken, by :attr:`_clock`."""
        self._stopping = False
        self._speed = speed
        self._paused = True
        begin = recording.begin
        self._anchor_moment = begin if begin is not None else 0.0
        """The moment that is played at :attr:`_anchor_clock`."""
        self._anchor_clock = clock()
        self._last_taken = -math.inf
        """Time of the last sample that was taken or passed over."""
        self._next_moment = self._anchor_moment
        """Time of the next sample, which :meth:`now` does not pass."""
        self._following: Iterator[StoredSample] | None = None
        """What follows; None: as of :attr:`_last_taken`."""
        self._recording_state: tuple[object, ...] = ()
        """The recording's state when that was begun to be read."""
        self.ended = False
        self._next_sample: StoredSample | None = None
        """The next sample, if it was read already."""
        self._gaps: list[Gap] = []
        self._last_gap: Gap | None = None

    @property
    def interval(self) -> float:
        """Seconds between the samples around the moment that is played, as they were asked for."""
        return self.interval_at(self._last_taken)

    @interval.setter
    def interval(self, seconds: float) -> None:
        """Ignored: the interval of a recording cannot change."""

    def interval_at(self, moment: float) -> float:
        """Seconds between the samples around a moment."""
        sessions = [session for session in self._sessions if session.began <= moment] or self._sessions[:1]
        return sessions[-1].interval if sessions else 1.0

    def start(self, wake: Callable[[], None] | None = None) -> None:
        """Starts playing, unless paused. ``wake`` as in :class:`~gpuwatch.machine.collector.feed.Feed`."""
        if self._thread is None and wake is not None:
            self._thread = threading.Thread(
                target=self._wake_when_due, args=(wake,), name="gpuwatch-replay", daemon=True
            )
            self._thread.start()

    def drain(self) -> list[Snapshot]:
        """All snapshots since the last call, each with its recorded findings."""
        return [sample.with_findings() for sample in self.take()]

    def take(self) -> list[StoredSample]:
        """The samples that are due, with their recorded findings, oldest first.

        :class:`~gpuwatch.core.errors.GpuwatchError` if the file can no longer be read.
        """
        samples: list[StoredSample] = []
        now = self._clock()  # once: reading takes time, too
        while not self._paused and (sample := self._find_next(now)) is not None:
            self._pass_gap(sample.at, now)
            behind = now - self._anchor_clock - (sample.at - self._anchor_moment) / self._speed
            if behind < 0:
                break
            if behind > _MAX_LATE_SECONDS:
                self._anchor(sample.at, now)
            samples.append(sample)
            self._last_taken, self._next_sample = sample.at, None
        if not self._paused:
            ahead = self._next_sample
            self._next_moment = max(ahead.at if ahead is not None else self._last_taken, self._anchor_moment)
            due = now + _POLL_SECONDS
            if ahead is not None:
                due = self._anchor_clock + (ahead.at - self._anchor_moment) / self._speed
            self._wake_at(max(due, now + _MIN_WAKE_SECONDS))
        return samples

    def take_gaps(self) -> list[Gap]:
        """The gaps that were passed over since the last call."""
        skipped, self._gaps = self._gaps, []
        return skipped

    def status(self) -> FeedStatus:
        """The feed's state, never late; also reads samples that were recorded since."""
        self.recording.refresh()
        return FeedStatus("stopped" if self._stopping else "ok", 0.0)

    def resumed(self) -> None:
        """Called after SIGCONT: playing continues where it was stopped."""
        self._anchor(self.now())

    def stop(self) -> None:
        with self._alarm:
            self._stopping = True
            self._alarm.notify()
        if self._thread is not None:
            self._thread.join(1.0)

    def now(self) -> float:
        """The moment that is played, in seconds since the epoch."""
        if self._paused:
            return self._anchor_moment
        played = (self._clock() - self._anchor_clock) * self._speed
        return max(self._anchor_moment, min(self._anchor_moment + played, self._next_moment))

    def _anchor(self, moment: float, clock: float | None = None) -> None:
        """Plays on from a moment, which is played at this time of the clock; None: now."""
        self._anchor_moment, self._anchor_clock = moment, self._clock() if clock is None else clock

    @property
    def speed(self) -> float:
        """Recorded seconds that are played in a second."""
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        self._anchor(self.now())
        self._speed = speed
        self._wake_at(self._anchor_clock)

    def change_speed(self, step: int) -> None:
        """Plays with the next greater speed (1) or smaller one (-1)."""
        further = [speed for speed in SPEEDS if (speed - self._speed) * step > 0]
        if further:
            self.speed = min(further, key=lambda value: abs(value - self._speed))

    @property
    def paused(self) -> bool:
        """Whether it stands still, as at the start."""
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._anchor(self.now())
        self._paused = paused
        self._wake_at(math.inf if paused else self._anchor_clock)

    def seek(self, after: float, moment: float) -> None:
        """Goes on with the samples after ``after``, at ``moment``."""
        self._last_taken, self._next_moment = after, moment
        self._following, self._next_sample, self.ended, self._gaps = None, None, False, []
        self._anchor(moment)
        self._wake_at(math.inf if self._paused else self._anchor_clock + _MIN_WAKE_SECONDS)

    def _find_next(self, now: float) -> StoredSample | None:
        """The sample after the last one; None if there is none yet."""
        following = self._following
        if self._next_sample is None and following and self._recording_state[0] == self.recording.last_block:
            self._next_sample = next(following, None)
        if self._next_sample is None:
            self.recording.refresh()
            state = (self.recording.last_block, self.recording.samples, self.recording.end)
            if self._following is None or state != self._recording_state:
                self._recording_state, self._sessions = state, self.recording.sessions
                after = self._before_the_clock_was_set_back()
                self._following = (sample for sample in self.recording.snapshots(after) if sample.at > after)
                self._next_sample = next(self._following, None)
        if self._next_sample is None:
            self.ended = True
            end = self.recording.end
            if end is not None and self._is_damaged(end):
                self._note_gap(end, damaged=True)
        elif self.ended:  # a file that grows: a sample is due when it is there
            self.ended = False
            self._anchor(self._next_sample.at, now)
        return self._next_sample

    def _before_the_clock_was_set_back(self) -> float:
        """Before the last sample if that one is earlier than what was taken: it is later, by another clock."""
        end = self.recording.end
        if end is not None and end <= self._last_taken - _CLOCK_SET_BACK_SECONDS:
            self._last_taken = math.nextafter(end, -math.inf)
            self._anchor(end)
        return self._last_taken

    def _is_damaged(self, to: float) -> bool:
        """Whether blocks between the last sample and a time cannot be read."""
        blocks = self.recording.damage.blocks.values()
        return any(self._last_taken <= block.begin <= block.end <= to for block in blocks)

    def _pass_gap(self, to: float, now: float) -> None:
        """Goes on at the next sample if it is behind a gap."""
        damaged = self._is_damaged(to)
        if self._last_taken > -math.inf and (damaged or to - self._last_taken > gap_limit(self.interval)):
            self._note_gap(to, damaged=damaged)
            self._anchor(to, now)

    def _note_gap(self, to: float, *, damaged: bool) -> None:
        gap = Gap(self._last_taken, to, damaged)
        if gap != self._last_gap:
            self._last_gap = gap
            self._gaps.append(gap)

    def _wake_at(self, due: float) -> None:
        with self._alarm:
            self._wake_due = due
            self._alarm.notify()

    def _wake_when_due(self, wake: Callable[[], None]) -> None:
        with self._alarm:
            while not self._stopping:
                left = self._wake_due - self._clock()
                if left > 0:
                    self._alarm.wait(left if left < math.inf else None)
                else:
                    self._wake_due = self._clock() + _POLL_SECONDS  # unless something is taken before
                    wake()
