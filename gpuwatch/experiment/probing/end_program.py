"""The end of a watched program: as its guard reports it, and as gpuwatch brings it about."""

from __future__ import annotations

import os
import signal
import time

from gpuwatch.core.model.run import Outcome
from gpuwatch.core.model.try_results import EndedBy
from gpuwatch.experiment.probing.launch_program import GuardedProgram
from gpuwatch.experiment.probing.received_signals import Signals
from gpuwatch.experiment.probing.watched_processes import WatchedProcesses

SIGINT_SECONDS, SIGTERM_SECONDS, SIGKILL_SECONDS = 5.0, 2.0, 2.0
"""Seconds that a program of ``gpuwatch try`` has after each signal before the next one is sent."""
SIGINT_WITH_RECORDING_SECONDS = 20.0
"""Seconds that it has after SIGINT if it writes a recording of its memory then."""
_GUARD_SECONDS = 4.0
"""Seconds to wait until the guard has ended what the program left behind: it sends SIGKILL after half of them."""


class GuardReports:
    """What the guard has reported (:mod:`gpuwatch.experiment.probing.guard_process`)."""

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


class Ending:
    """Ends one program and what it started."""

    def __init__(
        self, guarded: GuardedProgram, reports: GuardReports, processes: WatchedProcesses, signals: list[int]
    ) -> None:
        """``signals``: those sent to us, each of which hurries the end."""
        self._guarded = guarded
        self._reports = reports
        self._processes = processes
        self._signals = signals

    def end(self) -> EndedBy:
        """Ends the program and everything that it started: SIGINT as Ctrl+C would, then SIGTERM, then SIGKILL.

        Returns the signal that ended it. SIGTERM and SIGKILL go to its whole process group, SIGINT to the program and
        to what a shell runs for it.
        """
        recording = self._guarded.options.memory
        steps: tuple[tuple[EndedBy, str, float], ...] = (
            ("SIGINT", "interrupt", SIGINT_WITH_RECORDING_SECONDS if recording else SIGINT_SECONDS),
            ("SIGTERM", f"group {int(signal.SIGTERM)}", SIGTERM_SECONDS),
            ("SIGKILL", f"group {int(signal.SIGKILL)}", SIGKILL_SECONDS),
        )
        ended_by: EndedBy = "SIGINT"
        for name, command, seconds in steps:
            if self._reports.status is None:
                ended_by = name
                self._guarded.tell(command)
                self.wait(seconds)
        self.end_rest()
        return ended_by

    def wait(self, seconds: float) -> None:
        """Waits until the program has ended, at most so long; a further signal to us ends the wait."""
        received = len(self._signals)
        until = time.monotonic() + seconds
        while not self._reports.has_ended and time.monotonic() < until and len(self._signals) == received:
            self._guarded.streams.drain(0.05)
            self._guarded.signals.judge()

    def end_rest(self) -> None:
        """Ends what the program has left behind, in its session or in another, and hears its last reports."""
        self.end_left_behind()
        self._processes.stop_accepting()
        while self._guarded.options.memory and self._guarded.streams.drain(0):
            pass  # where its last recording is
        self._guarded.tell("leave")

    def end_left_behind(self) -> None:
        """Has the guard end everything that still runs."""
        self._guarded.tell("end")
        until = time.monotonic() + _GUARD_SECONDS
        while not self._reports.all_have_ended and time.monotonic() < until:
            self._guarded.streams.drain(0.05)
