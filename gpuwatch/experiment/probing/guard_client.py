"""The guard of a watched program, as gpuwatch sees it: what it has reported, and how it ends the program.

See guard_process.py for the messages.
"""

from __future__ import annotations

import os
import signal
import time

from gpuwatch.core.model.run import Outcome
from gpuwatch.core.model.try_results import EndedBy
from gpuwatch.experiment.probing.launch_program import GuardedProgram
from gpuwatch.experiment.probing.received_signals import SignalReceiver
from gpuwatch.experiment.probing.watched_processes import WatchedProcesses

SIGINT_SECONDS, SIGTERM_SECONDS, SIGKILL_SECONDS = 5.0, 2.0, 2.0
"""Seconds that a program of ``gpuwatch try`` has after each signal before the next one is sent."""
SIGINT_WITH_RECORDING_SECONDS = 20.0
"""Seconds that it has after SIGINT if it writes a recording of its memory then."""
_GUARD_SECONDS = 4.0
"""Seconds to wait until the guard has ended what the program left behind: it sends SIGKILL after half of them."""


class GuardReports:
    """What the guard has reported so far: the program's start and end, and signals."""

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


class ProgramEnder:
    """Ends one program and what it started: with SIGINT, then SIGTERM, then SIGKILL."""

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
        records_memory = self._guarded.options.record_memory
        signals_to_send: tuple[tuple[EndedBy, str, float], ...] = (
            ("SIGINT", "interrupt", SIGINT_WITH_RECORDING_SECONDS if records_memory else SIGINT_SECONDS),
            ("SIGTERM", f"group {int(signal.SIGTERM)}", SIGTERM_SECONDS),
            ("SIGKILL", f"group {int(signal.SIGKILL)}", SIGKILL_SECONDS),
        )
        ended_by: EndedBy = "SIGINT"
        for name, command, seconds in signals_to_send:
            if self._reports.wait_status is None:
                ended_by = name
                self._guarded.send_command(command)
                self.wait(seconds)
        self.end_and_release()
        return ended_by

    def wait(self, seconds: float) -> None:
        """Waits until the program has ended, at most so long; a further signal to us ends the wait."""
        signals_before = len(self._signals)
        deadline = time.monotonic() + seconds
        while not self._reports.has_ended and time.monotonic() < deadline and len(self._signals) == signals_before:
            self._guarded.streams.drain(0.05)
            self._guarded.signals.deliver()

    def end_and_release(self) -> None:
        """Ends what the program has left behind, in its session or in another, and hears its last reports."""
        self.end_left_behind()
        self._processes.stop_accepting()
        while self._guarded.options.record_memory and self._guarded.streams.drain(0):
            pass  # where its last recording is
        self._guarded.send_command("leave")

    def end_left_behind(self) -> None:
        """Has the guard end everything that still runs."""
        self._guarded.send_command("end")
        deadline = time.monotonic() + _GUARD_SECONDS
        while not self._reports.all_have_ended and time.monotonic() < deadline:
            self._guarded.streams.drain(0.05)
