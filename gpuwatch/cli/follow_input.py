"""Waits for the log on stdin, and shows causes and a status line on a terminal meanwhile."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from gpuwatch.cli.output import print_line
from gpuwatch.cli.progress import progress

if TYPE_CHECKING:
    from gpuwatch.explain.logs.program_starts import LogReader

_QUIET_SECONDS = 0.3
"""Seconds without a line after which the log is judged: most bursts are over by then."""
_EXAMINE_SECONDS = 2.0
"""Seconds between judgements while lines keep coming."""
_SILENT_SECONDS = 1.0
"""Seconds of silence after which a status line is shown."""
_MAX_FINDINGS_AT_ONCE = 3
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InputFollower:
    """Waits for a pipe; on a terminal it shows causes and a status line meanwhile."""

    def __init__(self, reader: LogReader, *, show_progress: bool) -> None:
        self._reader = reader
        self._show_progress = show_progress
        self._shown_findings: set[tuple[str, str]] = set()
        self._examined_lines = 0
        self._examined_at = self._last_data_at = time.monotonic()
        self._status_shown = False
        self._is_terminal_input = show_progress and sys.stdin is not None and sys.stdin.isatty()
        self.ended_by: int | None = None
        """The signal that ended the reading."""
        self._wake_read_end, self._wake_write_end = os.pipe()
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._interrupt) for number in _END_SIGNALS}
        if self._is_terminal_input:
            self._print_line("gpuwatch: paste a log here, then press Ctrl+D")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()
        if self.ended_by is None:
            for number, handler in self._before.items():
                signal.signal(number, handler)  # type: ignore[arg-type]
        os.close(self._wake_read_end)
        os.close(self._wake_write_end)

    def ready(self, descriptor: int) -> bool:
        """Waits for data or the end of file; False after Ctrl+C or SIGTERM."""
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        waiting.register(self._wake_read_end, select.POLLIN)
        while self.ended_by is None:
            # Once the status line is shown there is nothing to do until data arrives.
            found = waiting.poll(None if not self._show_progress or self._status_shown else _QUIET_SECONDS * 1000)
            if any(number == descriptor for number, _ in found):
                self._last_data_at = time.monotonic()
                self._clear()
                if self._show_progress and self._last_data_at - self._examined_at > _EXAMINE_SECONDS:
                    self._print_new_causes()
                return True
            if self._show_progress and not found:
                self._pause()
        return False

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.ended_by = number
        for ending in _END_SIGNALS:
            signal.signal(ending, signal.SIG_DFL)  # a second signal ends the program
        os.write(self._wake_write_end, b"!")

    def _pause(self) -> None:
        self._print_new_causes()
        # Not between pasted lines, which the terminal shows itself.
        if (
            time.monotonic() - self._last_data_at > _SILENT_SECONDS
            and not self._status_shown
            and not self._is_terminal_input
        ):
            lines = self._reader.parser.facts.lines
            self._status_shown = True
            so_far = f"{lines:,} line{'s' if lines != 1 else ''} so far"
            progress(f"waiting for more ({so_far}); Ctrl+C shows the explanation")

    def _print_new_causes(self) -> None:
        """Prints new causes, each with its line and what to do."""
        self._examined_at = time.monotonic()
        facts = self._reader.parser.facts
        if facts.lines == self._examined_lines:
            return
        self._examined_lines = facts.lines
        from gpuwatch.explain.diagnosis.explain_log import findings_so_far

        problems = [found for found in findings_so_far(facts) if found.severity in ("error", "warning")]
        for found in problems[:_MAX_FINDINGS_AT_ONCE]:
            key = (found.id, found.device_uuid or "")
            if key in self._shown_findings:
                continue
            self._shown_findings.add(key)
            likely = "" if found.certainty == "fact" else "likely: "
            self._print_line(f"gpuwatch: line {facts.lines:,}: {likely}{found.title} ({found.id})")
            if found.action:
                self._print_line(f"          {found.action}")

    def _print_line(self, line: str) -> None:
        self._clear()
        print_line(line, links=True)

    def _clear(self) -> None:
        if self._status_shown:
            self._status_shown = False
            progress("")
