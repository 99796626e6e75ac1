"""The status line of ``gpuwatch run``: the last row of the terminal.

The terminal excludes that row from scrolling (DECSTBM, as package managers do for their progress), and the program
sees a terminal that is one row shorter. Nothing is drawn inside the program's escape sequences or characters, nor if
output can reach the terminal past us.

Findings are printed once, in lines of their own, when the program's output is at the start of a line.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from gpuwatch.core.formatting.durations import clock_duration
from gpuwatch.core.formatting.units import count_rate, percent, short_size
from gpuwatch.core.safe_text import printable
from gpuwatch.experiment.probing.output_passthrough import OutputChannel

if TYPE_CHECKING:
    from gpuwatch.core.model.findings import Finding
    from gpuwatch.core.model.run import Throughput
    from gpuwatch.core.model.snapshot import Snapshot

_REDRAW_SECONDS = 1.0
_MIN_ROWS = 8
_MIN_COLUMNS = 40
_MAX_SHOWN_AT_ONCE = 3


class StatusLine:
    """Draws on the terminal behind a channel; does nothing if that is not possible."""

    def __init__(
        self, channel: OutputChannel, command: Sequence[str], *, draw_line: bool, print_findings: bool
    ) -> None:
        """``command``: the command; ``draw_line``: draw the status line if the terminal can."""
        self._channel = channel
        self._title = printable(" ".join(word.rpartition("/")[2] for word in command))
        self._draws_line = draw_line and channel.can_draw and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
        self._print_findings = print_findings and channel.is_open
        self._rows = 0
        self._columns = 0
        self._drawn_at = 0.0
        self._shown_findings: set[tuple[str, str]] = set()
        self._waiting_findings: list[str] = []
        self._warning = ""
        self._started = time.monotonic()
        self._snapshot: Snapshot | None = None
        self._used_bytes_by_gpu: dict[str, int] = {}
        self._speed: Throughput | None = None
        utf8 = "utf" in (os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or "").lower()
        self._separator = " │ " if utf8 else " | "

    @property
    def undo(self) -> bytes:
        """The bytes that restore the terminal; empty if nothing is drawn."""
        if not self._rows:
            return b""
        return f"\x1b7\x1b[r\x1b[{self._rows};1H\x1b[2K\x1b8".encode()

    def begin(self) -> None:
        """Takes the last row, if there is room and we are in the foreground."""
        if not self._draws_line or self._rows or not self._foreground():
            return
        rows, columns = self._channel.size()
        if rows < _MIN_ROWS or columns < _MIN_COLUMNS:
            return
        self._rows, self._columns = rows, columns
        # The line feed makes room if the cursor is in the last row; setting the region moves the cursor, so save it.
        self._channel.write_stderr(f"\n\x1b7\x1b[1;{rows - 1}r\x1b8\x1b[A".encode())
        self._channel.resize(reserved_rows=1)
        self.draw()

    def end(self) -> None:
        """Gives the row back."""
        if not self._rows:
            return
        self._channel.write_stderr(self.undo)
        self._rows = 0
        self._channel.resize()

    def resized(self) -> None:
        if not self._rows:
            self._channel.resize()
            return
        rows_before = self._rows
        rows, columns = self._channel.size()
        if rows < _MIN_ROWS or columns < _MIN_COLUMNS:
            self.end()
            return
        clear_sequence = f"\x1b[{rows_before};1H\x1b[2K" if rows_before < rows else ""
        self._rows, self._columns = rows, columns
        self._channel.write_stderr(f"\x1b7\x1b[r{clear_sequence}\x1b[1;{rows - 1}r\x1b8".encode())
        self._channel.resize(reserved_rows=1)

    def update(self, snapshot: Snapshot | None, used_bytes_by_gpu: dict[str, int], speed: Throughput | None) -> None:
        """Sets what to show; ``used_bytes_by_gpu``: the program's GPU memory in bytes, by device UUID."""
        self._snapshot = snapshot or self._snapshot
        self._used_bytes_by_gpu = used_bytes_by_gpu
        self._speed = speed

    def queue_findings(self, findings: Sequence[Finding]) -> None:
        """Queues new findings, most important first."""
        problems = [finding for finding in findings if finding.severity in ("error", "warning")]
        self._warning = problems[0].title if problems else ""
        for finding in problems[:_MAX_SHOWN_AT_ONCE]:
            key = (finding.id, finding.device_uuid or "")
            if key not in self._shown_findings:
                self._shown_findings.add(key)
                action = f" → {finding.action}" if finding.action else ""
                likely = "" if finding.certainty == "fact" else "likely: "
                self._waiting_findings.append(printable(f"gpuwatch: {likely}{finding.title}.{action}"))

    def tick(self) -> None:
        """Prints and redraws what is due; called regularly."""
        if self._print_findings and self._waiting_findings and self._channel.at_line_start and self._channel.can_write:
            self.print_findings()
        if self._draws_line and time.monotonic() - self._drawn_at >= _REDRAW_SECONDS and self._foreground():
            if self._rows:
                self.draw()
            elif self._channel.at_line_start:
                self.begin()

    def print_findings(self) -> None:
        if self._print_findings:
            for line in self._waiting_findings:
                self._channel.write_stderr(line.encode("utf-8", "replace") + b"\n")
        self._waiting_findings.clear()

    def draw(self) -> None:
        if not self._rows or not self._channel.can_write:
            return
        self._drawn_at = time.monotonic()
        text = set_cell_size(self.line_text(), self._columns - 1)
        scroll_region = f"\x1b[1;{self._rows - 1}r"
        self._channel.write_stderr(
            f"\x1b7{scroll_region}\x1b[{self._rows};1H\x1b[0;7m{text}\x1b[0m\x1b[K\x1b8".encode("utf-8", "replace")
        )

    def line_text(self) -> str:
        """``gpuwatch 0:00:12 │ GPU 0 87 % 12.1G/24.0G (11.0G by this) │ 512 steps/s │ train.py``, as far as it fits.

        A warning replaces the command, and other parts if there is no room.
        """
        parts = [f" gpuwatch {clock_duration(time.monotonic() - self._started)}", *self._devices()]
        if self._speed is not None:
            parts.append(f"{count_rate(self._speed.steps_per_second)} steps/s")
        warning_sign = "▲" if "│" in self._separator else "!"
        last_part = f"{warning_sign} {printable(self._warning)}" if self._warning else self._title
        max_width = self._columns - 1
        while (
            len(parts) > 1
            and cell_len(self._separator.join([*parts, last_part] if self._warning else parts)) > max_width
        ):
            parts.pop()
        return self._separator.join([*parts, last_part])

    def _devices(self) -> list[str]:
        if self._snapshot is None:
            return []
        used_devices = [device for device in self._snapshot.devices if device.uuid in self._used_bytes_by_gpu]
        if not used_devices:
            return ["not using a GPU yet" if self._snapshot.devices else "no GPU"]
        return [
            f"GPU {device.index} {percent(device.number('utilization.gpu_percent'))} "
            f"{short_size(device.number('memory.used_bytes'))}/{short_size(device.number('memory.total_bytes'))}"
            f" ({short_size(self._used_bytes_by_gpu[device.uuid])} by this)"
            for device in used_devices
        ]

    def _foreground(self) -> bool:
        """Whether we are in the foreground process group; in the background we must not draw."""
        try:
            return os.tcgetpgrp(2) == os.getpgrp()
        except OSError:
            return True  # not our controlling terminal: no job control
