"""Receives signals while gpuwatch watches a program, and finds out whether the program got them too."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

import msgspec

from gpuwatch.experiment.probing import guard_process
from gpuwatch.experiment.probing.stream_reader import StreamReader

_GUARD_REPORT_SECONDS = 0.1
"""Seconds after which the guard is asked whether it received a signal, too."""
_REPEAT_SECONDS = 0.1
"""Seconds between two equal signals that are passed on: the kernel and Python make one of two that wait together."""
_MAX_GUARD_SECONDS = 2.0
"""Seconds after which a signal was sent to us alone if the guard does not answer. On a busy machine it may be late."""


class _PendingSignal(msgspec.Struct):
    """A signal to us whose recipients are not known yet."""

    number: int
    arrived_at: float
    """Monotonic time of its arrival."""
    read_at: float
    """Monotonic time at which it was read."""
    request: int = 0
    """Number of the request to the guard that was sent because of it; 0: none yet."""


class SignalReceiver:
    """Reads signals from a wake-up pipe among the other streams.

    They wait there until somebody sets ``on_signal`` and calls :meth:`deliver`.
    """

    def __init__(self, streams: StreamReader, ask_guard: Callable[[], None], *, receive: bool) -> None:
        """``ask_guard`` has the guard report what it received, then call :meth:`guard_reported`.

        ``receive``: False in a thread, where Python delivers no signals; none comes then.
        """
        self._ask_guard = ask_guard
        self._streams = streams
        self.on_signal: Callable[[int, bool, float], None]
        """Called with the number, whether the whole process group got it, and its monotonic time."""
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)
        self._previous_handlers: dict[int, object] = {}
        self.program_has_started = False
        self._pending: list[_PendingSignal] = []
        self._arrivals: dict[int, float] = {}
        self._guard_signals: list[tuple[int, float]] = []
        self._passed_on_at: dict[int, float] = {}
        self._requests = 0
        self._answers = 0
        self._previous_fd = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False) if receive else None
        for number in (*guard_process.PASSED_SIGNALS, signal.SIGWINCH, signal.SIGTSTP) if receive else ():
            handler = signal.getsignal(number)
            if handler is not signal.SIG_IGN and handler is not None:
                self._previous_handlers[number] = handler
                signal.signal(number, self._note_arrival)
        streams.add(self._read_fd, self._read_numbers)

    def close(self) -> None:
        """Restores the previous handlers."""
        if self._previous_fd is not None:
            signal.set_wakeup_fd(self._previous_fd)
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # it came from getsignal
        self._streams.remove(self._read_fd)
        os.close(self._read_fd)
        os.close(self._write_fd)

    def longest_wait(self, most: float) -> float:
        """How long the caller may block, ``most`` seconds or less."""
        return min(most, _GUARD_REPORT_SECONDS / 4) if self._pending else most

    def guard_received(self, number: int) -> None:
        """The guard received this signal too."""
        self._guard_signals.append((number, time.monotonic()))

    def guard_reported(self) -> None:
        """The guard has reported all signals that it received before it was asked."""
        self._answers += 1

    def deliver(self) -> None:
        """Calls ``on_signal`` for the signals whose recipient is known; does nothing before the program has started."""
        if not self.program_has_started:
            return
        now = time.monotonic()
        self._guard_signals = [entry for entry in self._guard_signals if now - entry[1] < 5 * _GUARD_REPORT_SECONDS]
        for pending in list(self._pending):
            guard_signal = next((seen for seen in self._guard_signals if seen[0] == pending.number), None)
            if guard_signal is not None:
                self._guard_signals.remove(guard_signal)
            elif now - pending.read_at < _GUARD_REPORT_SECONDS:
                continue
            elif not pending.request:
                self._requests += 1
                pending.request = self._requests
                self._ask_guard()
                continue
            elif (self._answers < pending.request and now - pending.read_at < _MAX_GUARD_SECONDS) or (
                now - self._passed_on_at.get(pending.number, -_REPEAT_SECONDS) < _REPEAT_SECONDS
            ):
                continue
            else:
                self._passed_on_at[pending.number] = now
            self._pending.remove(pending)
            self.on_signal(pending.number, guard_signal is not None, pending.arrived_at)

    def take_pending(self) -> list[tuple[int, float]]:
        """Numbers and monotonic times of the signals that were not delivered, as the program ended first."""
        pending, self._pending = self._pending, []
        return [(entry.number, entry.arrived_at) for entry in pending]

    def stop_self(self) -> None:
        """Stops this process (SIGTSTP); returns when it is continued."""
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._note_arrival)

    def _note_arrival(self, number: int, frame: FrameType | None) -> None:
        """The handler; the wake-up descriptor receives the signal, which may be read much later."""
        self._arrivals[number] = time.monotonic()

    def _read_numbers(self, numbers: bytes) -> None:
        now = time.monotonic()
        for number in numbers:
            came = self._arrivals.get(number, now)
            if number in (signal.SIGWINCH, signal.SIGTSTP):
                self.on_signal(number, True, came)
            elif number in self._previous_handlers:
                self._pending.append(_PendingSignal(number, came, now))
