"""The sheet that asks which signal to send, and shows to which processes."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence

from gpuwatch.core.formatting.units import UNKNOWN, memory
from gpuwatch.core.model.snapshot import Process
from gpuwatch.core.safe_text import printable
from gpuwatch.machine.sources.process_signals import SignalResult, why_refused
from gpuwatch.ui.drawing.clock_text import date_and_time
from gpuwatch.ui.drawing.styled_lines import SpanLines
from gpuwatch.ui.drawing.text_width import align_left, align_right, cut_to_width
from gpuwatch.ui.screens.sheet_bases import ActionSheet, SheetAction
from gpuwatch.ui.tables.process_columns import command_text, short_command

SIGNALS = (
    (signal.SIGINT, "INT", "like Ctrl+C: most programs clean up and exit", ""),
    (signal.SIGTERM, "TERM", "asks it to exit, and lets it clean up", "y"),
    (signal.SIGKILL, "KILL", "the kernel kills it at once; nothing is saved", ""),
)
_MAX_PROCESSES = 8
"""Maximum processes listed; more are counted."""


def one_row_per_process(rows: Iterable[Process]) -> list[Process]:
    """One row per process: a process on two GPUs counts once."""
    return list({(row.pid, row.create_time): row for row in rows}.values())


def outcome_message(outcomes: Sequence[tuple[Process, SignalResult]], number: int) -> tuple[str, str]:
    """The result of sending a signal, in one line, and its style."""
    name = signal.Signals(number).name.removeprefix("SIG")
    delivered = [process for process, outcome in outcomes if outcome.state == "delivered"]
    failed = [(process, outcome) for process, outcome in outcomes if outcome.state != "delivered"]
    if not failed:
        if len(delivered) == 1:
            return f"● {name} delivered to {delivered[0].pid} {_short(delivered[0])}", "ok"
        return f"● {name} delivered to {len(delivered)} processes", "ok"
    process, outcome = failed[0]
    text = f"✖ no {name} to {process.pid}: {outcome.reason}"
    if len(failed) > 1:
        text += f" (and {len(failed) - 1} more)"
    if delivered:
        text += f"; delivered to {len(delivered)}"
    return text, "error"


def _short(process: Process) -> str:
    return cut_to_width(short_command(process), 24)


def _since(process: Process) -> str:
    return UNKNOWN if process.create_time is None else date_and_time(process.create_time)


def _target_lines(processes: Sequence[Process], room: int) -> SpanLines:
    if len(processes) == 1:
        process = processes[0]
        facts = (
            ("pid", str(process.pid), "strong"),
            ("user", printable(process.user) if process.user else UNKNOWN, "text"),
            ("command", command_text(process), "text"),
            ("started", _since(process), "text"),
            ("holds", f"{memory(process.number('gpu_memory_bytes'))} of GPU memory", "text"),
        )
        return [[(f" {name:<9}", "dim"), (cut_to_width(text, room - 10), style)] for name, text, style in facts]
    lines: SpanLines = []
    for process in processes[:_MAX_PROCESSES]:
        user = align_left(printable(process.user) if process.user else UNKNOWN, 9)
        begin = f" {align_right(str(process.pid), 7)}  "
        rest = cut_to_width(f"{_since(process)}  {short_command(process)}", room - len(begin) - 11)
        lines.append([(begin, "strong"), (user, "text"), ("  ", "text"), (rest, "dim")])
    if len(processes) > _MAX_PROCESSES:
        lines.append([(f" and {len(processes) - _MAX_PROCESSES} more", "dim")])
    return lines


class SignalSheet(ActionSheet[int]):
    """Result: a signal, 0 for none. Enter sends nothing unless the cursor was moved; ``y`` sends TERM.

    No choice is offered if no process can be identified.
    """

    def __init__(self, processes: Sequence[Process], width: int, *, doubt: bool = False) -> None:
        """``doubt``: some pids listed by the driver are from another PID namespace."""
        room = min(width * 9 // 10, 104) - 4
        lines = _target_lines(processes, room)
        refused = [(process, why) for process in processes if (why := why_refused(process.pid, process.create_time))]
        lines.append([])
        for process, why in refused[:3]:
            lines.append([(f" ✖ no signal to {process.pid}: ", "error"), (why, "text")])
        if len(refused) > 3:
            lines.append([(f" ✖ and {len(refused) - 3} more", "error")])
        signalable = len(processes) - len(refused)
        if signalable and doubt:
            text = "some pids here are from another PID namespace: is this the process you mean?"
            lines += [[(" ▲ ", "warning"), (text, "text")], []]
        target = f"{signalable} processes" if signalable > 1 else f"{processes[0].pid} {_short(processes[0])}"
        choices = [SheetAction("Cancel", "send nothing", "sends nothing")]
        choices += [SheetAction(name, text, f"sends {name} to {target}", key) for _, name, text, key in SIGNALS]
        of = f"{len(processes)} processes" if len(processes) > 1 else str(processes[0].pid)
        title = f"Send a signal to {of}" if signalable else "No signal can be sent"
        super().__init__(title, lines, choices if signalable else ())
        self._able = bool(signalable)

    def take(self, number: int) -> None:
        self.dismiss((0, *(signal for signal, *_ in SIGNALS))[number] if self._able else None)
