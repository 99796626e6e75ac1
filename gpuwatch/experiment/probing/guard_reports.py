"""What the guard of a watched program has reported: its start and end, and signals (see guard_process.py)."""

from __future__ import annotations

import os
import signal

from gpuwatch.core.model.run import Outcome
from gpuwatch.experiment.probing.received_signals import SignalReceiver


class GuardReports:
    """The reports so far."""

    def __init__(self, signals: SignalReceiver) -> None:
        """``signals`` learn which signals the guard got too."""
        self._signals = signals
        self.program_pid: int | None = None
        """The program's pid; None before it has started."""
        self.started_at = 0.0
        """Monotonic time of its start."""
        self.start_errno: int | None = None
        """errno of the start that failed."""
        self.wait_status: int | None = None
        """Wait status of the program; None while it runs."""
        self.left_behind_count = 0
        """Number of processes that it left behind."""
        self.peak_bytes: int | None = None
        """Largest resident set of one of the program's processes, in bytes."""
        self.everything_ended = False
        """Whether everything that it started has been ended."""
        self.guard_has_ended = False

    def take_line(self, line: bytes) -> None:
        report, _, arguments = line.partition(b" ")
        if report == b"started":
            pid, started_at = arguments.split()
            self.program_pid, self.started_at = int(pid), float(started_at)
            self._signals.program_has_started = True
        elif report == b"failed":
            self.start_errno = int(arguments)
        elif report == b"ended":
            status, left_behind, peak_kib = map(int, arguments.split())
            self.wait_status, self.left_behind_count, self.peak_bytes = status, left_behind, peak_kib << 10
        elif report == b"gone":
            self.everything_ended = True
        elif report == b"signal":
            self._signals.guard_received(int(arguments))
        elif report == b"reported":
            self._signals.guard_reported()

    def end_of_file(self) -> None:
        self.guard_has_ended = True

    @property
    def has_ended(self) -> bool:
        """Whether the program has ended, or nobody is left who would report that."""
        return self.wait_status is not None or self.guard_has_ended

    @property
    def all_have_ended(self) -> bool:
        """Whether everything that the program started has been ended, or nobody is left who would report that."""
        return self.everything_ended or self.guard_has_ended

    @property
    def was_killed(self) -> bool:
        return self.wait_status is not None and os.WIFSIGNALED(self.wait_status)

    @property
    def outcome(self) -> Outcome:
        """Exit code or signal; SIGKILL while neither is known."""
        if self.wait_status is None:
            return Outcome(signal=signal.SIGKILL)
        if self.was_killed:
            return Outcome(signal=os.WTERMSIG(self.wait_status))
        return Outcome(exit_code=os.WEXITSTATUS(self.wait_status))
