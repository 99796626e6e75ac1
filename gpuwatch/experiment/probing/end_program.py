"""Ends a watched program, and what it started: with SIGINT, then SIGTERM, then SIGKILL."""

from __future__ import annotations

import signal
import time

from gpuwatch.core.model.try_results import EndedBy
from gpuwatch.experiment.probing.guard_reports import GuardReports
from gpuwatch.experiment.probing.launch_program import GuardedProgram
from gpuwatch.experiment.probing.watched_processes import WatchedProcesses

SIGINT_SECONDS, SIGTERM_SECONDS, SIGKILL_SECONDS = 5.0, 2.0, 2.0
"""Seconds that a program of ``gpuwatch try`` has after each signal before the next one is sent."""
SIGINT_WITH_RECORDING_SECONDS = 20.0
"""Seconds that it has after SIGINT if it writes a recording of its memory then."""
_GUARD_SECONDS = 4.0
"""Seconds to wait until the guard has ended what the program left behind: it sends SIGKILL after half of them."""


class ProgramEnder:
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
