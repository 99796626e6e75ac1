"""What the guard of a watched program has reported: its start and end, and signals (see guard_process.py)."""

from __future__ import annotations

import os
import signal

from gpuwatch.core.model.run import Outcome
from gpuwatch.experiment.probing.received_signals import Signals


class GuardReports:
    """The reports so far."""

    def __init__(self, signals: Signals) -> None:
        """``signals`` learn which signals the guard got too."""
        self._signals = signals
        self.program: int | None = None
        """The program's pid; None before it has started."""
        self.started = 0.0
        """Monotonic time of its start."""
        self.error: int | None = None
        """errno of the start that failed."""
        self.status: int | None = None
        """Wait status of the program; None while it runs."""
        self.left_behind = 0
        """Number of processes that it left behind."""
        self.peak_bytes: int | None = None
        """Largest resident set of one of the program's processes, in bytes."""
        self.nobody_left = False
        """Whether everything that it started has been ended."""
        self.guard_gone = False

    def take(self, line: bytes) -> None:
        word, _, rest = line.partition(b" ")
        if word == b"started":
            pid, since = rest.split()
            self.program, self.started = int(pid), float(since)
            self._signals.ready = True
        elif word == b"failed":
            self.error = int(rest)
        elif word == b"ended":
            status, left_behind, peak_kib = map(int, rest.split())
            self.status, self.left_behind, self.peak_bytes = status, left_behind, peak_kib << 10
        elif word == b"gone":
            self.nobody_left = True
        elif word == b"signal":
            self._signals.guard_received(int(rest))
        elif word == b"reported":
            self._signals.guard_reported()

    def end_of_file(self) -> None:
        self.guard_gone = True

    @property
    def has_ended(self) -> bool:
        """Whether the program has ended, or nobody is left who would report that."""
        return self.status is not None or self.guard_gone

    @property
    def all_have_ended(self) -> bool:
        """Whether everything that the program started has been ended, or nobody is left who would report that."""
        return self.nobody_left or self.guard_gone

    @property
    def killed(self) -> bool:
        return self.status is not None and os.WIFSIGNALED(self.status)

    @property
    def outcome(self) -> Outcome:
        """Exit code or signal; SIGKILL while neither is known."""
        if self.status is None:
            return Outcome(signal=signal.SIGKILL)
        if self.killed:
            return Outcome(signal=os.WTERMSIG(self.status))
        return Outcome(exit_code=os.WEXITSTATUS(self.status))
