"""A feed that plays a recording: its samples at the pace at which they were taken, or a multiple of it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.feed_interface import FeedStatus
from gpuwatch.machine.collector.process_access import ProcessAccess
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

    A :class:`~gpuwatch.machine.collector.feed_interface.Feed`, used by one thread: samples are read when they are
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
        self._runs = recording.sessions
        name = self._runs[-1].hostname or "" if self._runs else ""
        self.host = ProcessAccess(name, unreachable="not part of a recording")  # perhaps this one, at another time
        self._alarm = threading.Condition()
        self._thread: threading.Thread | None = None
        self._due = math.inf
        """When the front end is to be woken, by the clock."""
        self._stopping = False
        self._speed = speed
        self._paused = True
        begin = recording.begin
        self._at = begin if begin is not None else 0.0
        """The moment that is played at :attr:`_since`."""
        self._since = clock()
        self._after = -math.inf
        """Time of the last sample that was taken or passed over."""
        self._until = self._at
        """Time of the next sample, which :meth:`now` does not pass."""
        self._samples: Iterator[StoredSample] | None = None
        """What follows; None: as of :attr:`_after`."""
        self._read: tuple[object, ...] = ()
        """The recording's state when that was begun to be read."""
        self.ended = False
        self._ahead: StoredSample | None = None
        """The next sample, if it was read already."""
        self._skipped: list[Gap] = []
        self._last_skipped: Gap | None = None

    @property
    def interval(self) -> float:
        """Seconds between the samples around the moment that is played, as the recorder was told."""
        return self.interval_at(self._after)

    @interval.setter
    def interval(self, seconds: float) -> None:
        """Ignored: the interval of a recording cannot change."""

    def interval_at(self, moment: float) -> float:
        """Seconds between the samples around a moment."""
        begun = [run for run in self._runs if run.began <= moment] or self._runs[:1]
        return begun[-1].interval if begun else 1.0

    def start(self, wake: Callable[[], None] | None = None) -> None:
        """Starts playing, unless paused. ``wake`` as in :class:`~gpuwatch.machine.collector.feed_interface.Feed`."""
        if self._thread is None and wake is not None:
            self._thread = threading.Thread(target=self._ring, args=(wake,), name="gpuwatch-replay", daemon=True)
            self._thread.start()

    def drain(self) -> list[Snapshot]:
        """All snapshots since the last call, each with its recorded findings."""
        return [kept.with_findings() for kept in self.take()]

    def take(self) -> list[StoredSample]:
        """The samples that are due, with their recorded findings, oldest first.

        :class:`~gpuwatch.core.errors.GpuwatchError` if the file can no longer be read.
        """
        arrived: list[StoredSample] = []
        now = self._clock()  # once: reading takes time, too
        while not self._paused and (kept := self._next(now)) is not None:
            self._pass_gap(kept.at, now)
            late = now - self._since - (kept.at - self._at) / self._speed
            if late < 0:
                break
            if late > _MAX_LATE_SECONDS:
                self._anchor(kept.at, now)
            arrived.append(kept)
            self._after, self._ahead = kept.at, None
        if not self._paused:
            ahead = self._ahead
            self._until = max(ahead.at if ahead is not None else self._after, self._at)
            due = self._since + (ahead.at - self._at) / self._speed if ahead is not None else now + _POLL_SECONDS
            self._wake_at(max(due, now + _MIN_WAKE_SECONDS))
        return arrived

    def take_gaps(self) -> list[Gap]:
        """The gaps that were passed over since the last call."""
        skipped, self._skipped = self._skipped, []
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
        if self._paused:
            return self._at
        return max(self._at, min(self._at + (self._clock() - self._since) * self._speed, self._until))

    def _anchor(self, at: float, since: float | None = None) -> None:
        self._at, self._since = at, self._clock() if since is None else since

    @property
    def speed(self) -> float:
        """Recorded seconds that are played in a second."""
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        self._anchor(self.now())
        self._speed = speed
        self._wake_at(self._since)

    def change_speed(self, step: int) -> None:
        """Plays with the next greater speed (1) or smaller one (-1)."""
        further = [speed for speed in SPEEDS if (speed - self._speed) * step > 0]
        if further:
            self.speed = min(further, key=lambda value: abs(value - self._speed))

    @property
    def paused(self) -> bool:
        """Whether it stands still; it does until it is told otherwise."""
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._anchor(self.now())
        self._paused = paused
        self._wake_at(math.inf if paused else self._since)

    def seek(self, after: float, moment: float) -> None:
        """Goes on with the samples after ``after``, at ``moment``."""
        self._after, self._until = after, moment
        self._samples, self._ahead, self.ended, self._skipped = None, None, False, []
        self._anchor(moment)
        self._wake_at(math.inf if self._paused else self._since + _MIN_WAKE_SECONDS)

    def _next(self, now: float) -> StoredSample | None:
        """The sample after the last one; None if there is none yet."""
        if self._ahead is None and self._samples is not None and self._read[0] == self.recording.last_block:
            self._ahead = next(self._samples, None)
        if self._ahead is None:
            self.recording.refresh()
            state = (self.recording.last_block, self.recording.samples, self.recording.end)
            if self._samples is None or state != self._read:
                self._read, self._runs = state, self.recording.sessions
                after = self._before_the_clock_was_set_back()
                self._samples = (kept for kept in self.recording.snapshots(after) if kept.at > after)
                self._ahead = next(self._samples, None)
        if self._ahead is None:
            self.ended = True
            end = self.recording.end
            if end is not None and self._is_damaged(end):
                self._skip(end, damaged=True)
        elif self.ended:  # a file that grows: a sample is due when it is there
            self.ended = False
            self._anchor(self._ahead.at, now)
        return self._ahead

    def _before_the_clock_was_set_back(self) -> float:
        """Before the last sample if that one is earlier than what was taken: it is later, by another clock."""
        end = self.recording.end
        if end is not None and end <= self._after - _CLOCK_SET_BACK_SECONDS:
            self._after = math.nextafter(end, -math.inf)
            self._anchor(end)
        return self._after

    def _is_damaged(self, to: float) -> bool:
        """Whether blocks between the last sample and a time cannot be read."""
        return any(self._after <= block.begin <= block.end <= to for block in self.recording.damage.blocks.values())

    def _pass_gap(self, to: float, now: float) -> None:
        """Goes on at the next sample if it is behind a gap."""
        damaged = self._is_damaged(to)
        if self._after > -math.inf and (damaged or to - self._after > gap_limit(self.interval)):
            self._skip(to, damaged=damaged)
            self._anchor(to, now)

    def _skip(self, to: float, *, damaged: bool) -> None:
        gap = Gap(self._after, to, damaged)
        if gap != self._last_skipped:
            self._last_skipped = gap
            self._skipped.append(gap)

    def _wake_at(self, due: float) -> None:
        with self._alarm:
            self._due = due
            self._alarm.notify()

    def _ring(self, wake: Callable[[], None]) -> None:
        with self._alarm:
            while not self._stopping:
                left = self._due - self._clock()
                if left > 0:
                    self._alarm.wait(left if left < math.inf else None)
                else:
                    self._due = self._clock() + _POLL_SECONDS  # unless something is taken before
                    wake()
