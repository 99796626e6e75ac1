"""Reads a pipe that is still being written: shows causes as soon as they are recognized; Ctrl+C only stops reading."""

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
_JUDGE_SECONDS = 2.0
"""Seconds between judgements while lines keep coming."""
_SILENT_SECONDS = 1.0
"""Seconds of silence after which a status line is shown."""
_MAX_FINDINGS_AT_ONCE = 3
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InputFollower:
    """Waits for a pipe; on a terminal it shows causes and a status line meanwhile."""

    def __init__(self, reader: LogReader, *, talk: bool) -> None:
        self._reader = reader
        self._talk = talk
        self._shown: set[tuple[str, str]] = set()
        self._judged_lines = 0
        self._judged = self._heard = time.monotonic()
        self._status = False
        self._pasted = talk and sys.stdin is not None and sys.stdin.isatty()
        self.ended_by: int | None = None
        """The signal that ended the reading."""
        self._wake, self._woken = os.pipe()
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._interrupt) for number in _END_SIGNALS}
        if self._pasted:
            self._print_line("gpuwatch: paste a log here, then press Ctrl+D")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()
        if self.ended_by is None:
            for number, handler in self._before.items():
                signal.signal(number, handler)  # type: ignore[arg-type]
        os.close(self._wake)
        os.close(self._woken)

    def ready(self, descriptor: int) -> bool:
        """Waits for data or the end of file; False after Ctrl+C or SIGTERM."""
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        waiting.register(self._wake, select.POLLIN)
        while self.ended_by is None:
            # Once the status line is shown there is nothing to do until data arrives.
            found = waiting.poll(None if not self._talk or self._status else _QUIET_SECONDS * 1000)
            if any(number == descriptor for number, _ in found):
                self._heard = time.monotonic()
                self._clear()
                if self._talk and self._heard - self._judged > _JUDGE_SECONDS:
                    self._print_new_causes()
                return True
            if self._talk and not found:
                self._pause()
        return False

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.ended_by = number
        for ending in _END_SIGNALS:
            signal.signal(ending, signal.SIG_DFL)  # a second signal ends the program
        os.write(self._woken, b"!")

    def _pause(self) -> None:
        self._print_new_causes()
        # Not between pasted lines, which the terminal shows itself.
        if time.monotonic() - self._heard > _SILENT_SECONDS and not self._status and not self._pasted:
            lines = self._reader.parser.facts.lines
            self._status = True
            so_far = f"{lines:,} line{'s' if lines != 1 else ''} so far"
            progress(f"waiting for more ({so_far}); Ctrl+C shows the explanation")

    def _print_new_causes(self) -> None:
        """Prints new causes, each with its line and what to do."""
        self._judged = time.monotonic()
        facts = self._reader.parser.facts
        if facts.lines == self._judged_lines:
            return
        self._judged_lines = facts.lines
        from gpuwatch.explain.diagnosis.explain_log import findings_of

        telling = [found for found in findings_of(facts) if found.severity in ("error", "warning")]
        for found in telling[:_MAX_FINDINGS_AT_ONCE]:
            key = (found.id, found.device_uuid or "")
            if key in self._shown:
                continue
            self._shown.add(key)
            likely = "" if found.certainty == "fact" else "likely: "
            self._print_line(f"gpuwatch: line {facts.lines:,}: {likely}{found.title} ({found.id})")
            if found.action:
                self._print_line(f"          {found.action}")

    def _print_line(self, line: str) -> None:
        self._clear()
        print_line(line, links=True)

    def _clear(self) -> None:
        if self._status:
            self._status = False
            progress("")
