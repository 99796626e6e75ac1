"""A feed that plays a recording: its samples at the pace at which they were taken, or a multiple of it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.collector.host_access import HostAccess
from gpuwatch.machine.history.sample_store import Kept
from gpuwatch.machine.recording.reader import Recording

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Multiples of the recorded pace that a front end offers."""
_WAKE = 0.2
"""Minimum seconds between two wake-ups, however fast it plays."""
_LOOK = 0.5
"""Seconds between looks at a file that has been played to its end and may grow."""
_SET_BACK = 1.0
"""Seconds by which the clock was set back at least if samples get earlier."""
_LATE = 1.0
"""Seconds that playing may be behind, as after a suspend, before it goes on from where it is."""


def gap_limit(interval: float) -> float:
    """Seconds between two samples that are a gap, if one is taken every ``interval`` seconds."""
    return max(2.5 * interval, interval + 4.0)


class Skipped(NamedTuple):
    """A time without samples that was passed over. Times are seconds since the epoch."""

    begin: float
    """Time of the last sample before it."""
    end: float
    """Time of the first sample after it."""
    damaged: bool
    """Whether blocks of it could not be read."""


class RecordedHost(HostAccess):
    """The machine of a recording, perhaps this one at another time: nothing is read from it."""

    @property
    def unreachable(self) -> str:
        """As in the base."""
        return "not part of a recording"


class RecordedFeed:
    """Plays a file from a moment on; at its end it waits for more.

    A :class:`~gpuwatch.machine.collector.feed.Feed`. It opens the file for its thread alone. Times are seconds since
    the epoch.
    """

    def __init__(
        self,
        path: Path,
        *,
        speed: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock``: seconds by which to play."""
        self._recording = Recording(path)
        self._clock = clock
        self._runs = self._recording.runs
        self._host = RecordedHost(self._runs[-1].hostname or "" if self._runs else "")
        self._turn = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wake: Callable[[], None] = lambda: None
        self._woken = -math.inf
        self._stopping = False
        self._failure: Exception | None = None
        self._speed = speed
        self._paused = True
        begin = self._recording.begin
        self._at = begin if begin is not None else 0.0
        """The moment that is played at :attr:`_since`."""
        self._since = clock()
        self._after = -math.inf
        """Time of the last sample that was delivered or passed over."""
        self._until = self._at
        """Time of the next sample, which :meth:`now` does not pass."""
        self._sought = 0
        """Number of calls of :meth:`seek`."""
        self._ended = False
        self._arrived: list[Kept] = []
        self._skipped: list[Skipped] = []
        self._last_skipped = (-math.inf, -math.inf)
        """Begin and end of the last of them."""

    # As a feed

    @property
    def host(self) -> HostAccess:
        """The recorded machine."""
        return self._host

    @property
    def interval(self) -> float:
        """Seconds between the samples around the moment that is played, as the recorder was told."""
        begun = [run for run in self._runs if run.began <= self._after] or self._runs[:1]
        return begun[-1].interval if begun else 1.0

    @interval.setter
    def interval(self, seconds: float) -> None:
        """What was recorded cannot change."""

    def start(self, wake: Callable[[], None] | None = None) -> None:
        """As in the protocol: plays, unless it is paused."""
        if wake is not None:
            self._wake = wake
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpuwatch-replay", daemon=True)
            self._thread.start()

    def drain(self) -> list[Snapshot]:
        """As in the protocol."""
        return [kept.snapshot for kept in self.take()]

    def take(self) -> list[Kept]:
        """All samples since the last call with their recorded findings, oldest first.

        :class:`~gpuwatch.core.errors.GpuwatchError` if the file can no longer be read.
        """
        with self._turn:
            arrived, self._arrived = self._arrived, []
            if self._failure is not None:
                raise self._failure
        return arrived

    def take_skipped(self) -> list[Skipped]:
        """The gaps that were passed over since the last call."""
        with self._turn:
            skipped, self._skipped = self._skipped, []
        return skipped

    def status(self) -> FeedStatus:
        """As in the protocol: a recording never keeps anybody waiting."""
        return FeedStatus("stopped" if self._stopping else "ok", 0.0)

    def resumed(self) -> None:
        """As in the protocol: playing goes on where it was stopped."""
        with self._turn:
            self._anchor(self._now())

    def stop(self) -> None:
        """As in the protocol."""
        with self._turn:
            self._stopping = True
            self._turn.notify()
        if self._thread is not None:
            self._thread.join(1.0)
        if self._thread is None or not self._thread.is_alive():
            self._recording.close()

    # Playing

    def now(self) -> float:
        """The moment that is played."""
        with self._turn:
            return self._now()

    def _now(self) -> float:
        if self._paused:
            return self._at
        return max(self._at, min(self._at + (self._clock() - self._since) * self._speed, self._until))

    def _anchor(self, at: float) -> None:
        self._at, self._since = at, self._clock()

    @property
    def speed(self) -> float:
        """Recorded seconds that are played in a second."""
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        with self._turn:
            self._anchor(self._now())
            self._speed = speed
            self._turn.notify()

    @property
    def paused(self) -> bool:
        """Whether it stands still; it does until it is told otherwise."""
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        with self._turn:
            self._anchor(self._now())
            self._paused = paused
            self._turn.notify()

    @property
    def ended(self) -> bool:
        """Whether the last sample has been delivered; more may follow."""
        return self._ended

    def seek(self, after: float, moment: float) -> None:
        """Goes on with the samples after ``after``, at ``moment``; what was not drained yet is dropped."""
        with self._turn:
            self._after, self._until = after, moment
            self._arrived, self._skipped = [], []
            self._sought += 1
            self._ended = False
            self._anchor(moment)
            self._turn.notify()

    def _run(self) -> None:
        try:
            self._play()
        except Exception as error:  # noqa: BLE001 - raised again where samples are taken
            self._failure = error
            self._wake()

    def _play(self) -> None:
        samples: Iterator[Kept] = iter(())
        ahead: Kept | None = None
        sought, damaged, exhausted = -1, 0, False
        while True:
            with self._turn:
                while not self._stopping and self._paused and sought == self._sought:
                    self._turn.wait()
                if self._stopping:
                    return
                if sought != self._sought:
                    sought, after = self._sought, self._after
                    samples, ahead, exhausted = iter(()), None, False
                    damaged = len(self._recording.damage.blocks)
            # Reading is done outside of the lock: it takes milliseconds.
            if ahead is None:
                ahead = next((kept for kept in samples if kept.at > after), None)
            hurt = len(self._recording.damage.blocks) > damaged
            if ahead is not None:
                if self._deliver(ahead, sought, damaged=hurt):
                    after, ahead, exhausted = ahead.at, None, False
                    damaged = len(self._recording.damage.blocks)
            elif self._recording.refresh() or not exhausted:
                exhausted = True
                after = self._before_the_clock_was_set_back(after)
                self._runs = self._recording.runs
                samples = self._recording.snapshots(after)
            else:
                self._wait_for_more(sought, damaged=hurt)
                damaged = len(self._recording.damage.blocks)

    def _before_the_clock_was_set_back(self, after: float) -> float:
        """``after``, or what is before the last sample if that one is earlier: it is later, by another clock."""
        end = self._recording.end
        if end is None or end > after - _SET_BACK:
            return after
        with self._turn:
            self._after = math.nextafter(end, -math.inf)
            self._anchor(end)
            return self._after

    def _wait_for_more(self, sought: int, *, damaged: bool) -> None:
        with self._turn:
            if sought != self._sought:
                return
            end = self._recording.end
            if damaged and end is not None and end > self._after:
                self._skipped.append(Skipped(self._after, end, damaged=True))
            self._until = max(self._after, self._at)
            if not self._ended:
                self._ended = True
                self._tell(force=True)
            self._turn.wait(_LOOK)

    def _deliver(self, kept: Kept, sought: int, *, damaged: bool) -> bool:
        """Waits until the sample is due and delivers it; False if something has changed meanwhile."""
        with self._turn:
            if sought != self._sought or self._stopping or self._paused:
                return False
            if self._ended:  # a file that grows: the next sample is due when it is there
                self._ended = False
                self._anchor(kept.at)
            gap = damaged or kept.at - self._after > gap_limit(self.interval)
            if gap and self._after > -math.inf and self._last_skipped != (self._after, kept.at):
                self._last_skipped = (self._after, kept.at)
                self._skipped.append(Skipped(*self._last_skipped, damaged))
                self._anchor(kept.at)
            self._until = max(kept.at, self._at)
            late = self._clock() - self._since - (kept.at - self._at) / self._speed
            if late < 0:
                self._turn.wait(self._tell(until=-late))
                return False
            if late > _LATE:
                self._anchor(kept.at)
            self._arrived.append(kept)
            self._after = kept.at
            self._tell()
            return True

    def _tell(self, *, until: float = 0.0, force: bool = False) -> float:
        """Wakes the front end if something has arrived, not too often; how long to sleep of ``until`` seconds."""
        if not self._arrived and not force:
            return until
        now = time.monotonic()
        left = self._woken + _WAKE - now
        if left > 0 and not force:
            return min(until, left) if until else left
        self._woken = now
        self._wake()
        return until
