"""Signals to gpuwatch while it watches a program: which of them the program got as well."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from gpuwatch.probing import guard
from gpuwatch.probing.streams import Streams

_WITNESS = 0.1
"""Seconds after which a signal that the guard did not get too was meant for us alone."""


class Signals:
    """Signals as bytes among the other streams, each with the answer to whom it was sent."""

    def __init__(self, streams: Streams, take: Callable[[int, bool, float], None]) -> None:
        self._streams = streams
        self._take = take
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._kept: dict[int, object] = {}
        self.ready = False
        self._mine: list[tuple[int, float]] = []
        self._witnessed: list[tuple[int, float]] = []
        self._fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (*guard.WATCHED, signal.SIGWINCH, signal.SIGTSTP):
            handler = signal.getsignal(number)
            if handler is not signal.SIG_IGN and handler is not None:
                self._kept[number] = handler
                signal.signal(number, _nothing)
        streams.add(self._read, self._arrived)

    def close(self) -> None:
        """Puts the handlers back that were there before."""
        signal.set_wakeup_fd(self._fd)
        for number, handler in self._kept.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # it came from getsignal
        self._streams.remove(self._read)
        os.close(self._read)
        os.close(self._write)

    def patience(self, most: float) -> float:
        """How long one may wait for anything."""
        return min(most, _WITNESS / 4) if self._mine else most

    def witnessed(self, number: int) -> None:
        """The guard got it too."""
        self._witnessed.append((number, time.monotonic()))

    def judge(self) -> None:
        """Hands out what is decided; nothing before there is a program."""
        if not self.ready:
            return
        now = time.monotonic()
        self._witnessed = [entry for entry in self._witnessed if now - entry[1] < 5 * _WITNESS]
        for entry in list(self._mine):
            number, came = entry
            other = next((seen for seen in self._witnessed if seen[0] == number), None)
            if other is not None:
                self._witnessed.remove(other)
            elif now - came < _WITNESS:
                continue
            self._mine.remove(entry)
            self._take(number, other is not None, came)

    def stop_here(self) -> None:
        """Stops this process as the signal would have; returns when it is continued."""
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, _nothing)

    def _arrived(self, numbers: bytes) -> None:
        for number in numbers:
            if number in (signal.SIGWINCH, signal.SIGTSTP):
                self._take(number, True, time.monotonic())
            elif number in self._kept:
                self._mine.append((number, time.monotonic()))


def _nothing(number: int, frame: FrameType | None) -> None:
    """The wake-up descriptor has it already."""
