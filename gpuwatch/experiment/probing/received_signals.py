"""Receives signals while gpuwatch watches a program, and finds out whether the program got them too."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

import msgspec

from gpuwatch.experiment.probing import guard_process
from gpuwatch.experiment.probing.pipe_reader import StreamReader

_GUARD_REPORT_SECONDS = 0.1
"""Seconds after which the guard is asked whether it received a signal, too."""
_MAX_GUARD_SECONDS = 2.0
"""Seconds after which a signal was sent to us alone if the guard does not answer. On a busy machine it may be late."""


class _Signal(msgspec.Struct):
    """A signal to us whose recipients are not known yet."""

    number: int
    came: float
    """Monotonic time of its arrival."""
    read: float
    """Monotonic time at which it was read."""
    request: int = 0
    """Number of the request to the guard that was sent because of it; 0: none yet."""


class Signals:
    """Reads signals from a wake-up pipe among the other streams.

    They wait there until somebody sets ``take`` and calls :meth:`judge`.
    """

    def __init__(self, streams: StreamReader, ask_guard: Callable[[], None], *, receive: bool) -> None:
        """``ask_guard`` has the guard report what it received, then call :meth:`guard_reported`.

        ``receive``: False in a thread, where Python delivers no signals; none comes then.
        """
        self._ask_guard = ask_guard
        self._streams = streams
        self.take: Callable[[int, bool, float], None]
        """Called with the number, whether the whole process group got it, and its monotonic time."""
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._handlers: dict[int, object] = {}
        self.ready = False
        self._ours: list[_Signal] = []
        self._arrivals: dict[int, float] = {}
        self._of_guard: list[tuple[int, float]] = []
        self._requests = 0
        self._answers = 0
        self._previous_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False) if receive else None
        for number in (*guard_process.WATCHED, signal.SIGWINCH, signal.SIGTSTP) if receive else ():
            handler = signal.getsignal(number)
            if handler is not signal.SIG_IGN and handler is not None:
                self._handlers[number] = handler
                signal.signal(number, self._note)
        streams.add(self._read, self._read_numbers)

    def close(self) -> None:
        """Restores the previous handlers."""
        if self._previous_fd is not None:
            signal.set_wakeup_fd(self._previous_fd)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # it came from getsignal
        self._streams.remove(self._read)
        os.close(self._read)
        os.close(self._write)

    def patience(self, most: float) -> float:
        """How long the caller may block, ``most`` seconds or less."""
        return min(most, _GUARD_REPORT_SECONDS / 4) if self._ours else most

    def guard_received(self, number: int) -> None:
        """The guard received this signal too."""
        self._of_guard.append((number, time.monotonic()))

    def guard_reported(self) -> None:
        """The guard has reported all signals that it received before it was asked."""
        self._answers += 1

    def judge(self) -> None:
        """Calls ``take`` for the signals whose recipient is known; does nothing before the program has started."""
        if not self.ready:
            return
        now = time.monotonic()
        self._of_guard = [entry for entry in self._of_guard if now - entry[1] < 5 * _GUARD_REPORT_SECONDS]
        for ours in list(self._ours):
            other = next((seen for seen in self._of_guard if seen[0] == ours.number), None)
            if other is not None:
                self._of_guard.remove(other)
            elif now - ours.read < _GUARD_REPORT_SECONDS:
                continue
            elif not ours.request:
                self._requests += 1
                ours.request = self._requests
                self._ask_guard()
                continue
            elif self._answers < ours.request and now - ours.read < _MAX_GUARD_SECONDS:
                continue
            self._ours.remove(ours)
            self.take(ours.number, other is not None, ours.came)

    def stop_here(self) -> None:
        """Stops this process (SIGTSTP); returns when it is continued."""
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        """The handler; the wake-up descriptor receives the signal, which may be read much later."""
        self._arrivals[number] = time.monotonic()

    def _read_numbers(self, numbers: bytes) -> None:
        now = time.monotonic()
        for number in numbers:
            came = self._arrivals.get(number, now)
            if number in (signal.SIGWINCH, signal.SIGTSTP):
                self.take(number, True, came)
            elif number in self._handlers:
                self._ours.append(_Signal(number, came, now))
