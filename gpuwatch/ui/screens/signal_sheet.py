"""The sheet that asks which signal, and says to whom."""

from __future__ import annotations

import datetime
import signal
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType

from gpuwatch.formatting.text import printable
from gpuwatch.formatting.units import UNKNOWN, size
from gpuwatch.model.snapshot import Process
from gpuwatch.sources.signals import refusal
from gpuwatch.ui.cells import cut, left, right
from gpuwatch.ui.choices import ChoosingApp
from gpuwatch.ui.rows import command_text, short_command
from gpuwatch.ui.screens.lines_modal import Lines, LinesModal, Sheet

if TYPE_CHECKING:
    from gpuwatch.sources.signals import Outcome

CHOICES = (
    (signal.SIGINT, "INT", "as Ctrl+C: most programs stop and clean up"),
    (signal.SIGTERM, "TERM", "asks it to end, and lets it clean up"),
    (signal.SIGKILL, "KILL", "the kernel ends it at once; nothing is saved"),
)
_PRESELECTED = 1
_MOST = 8
"""Processes that are listed; more are counted."""


def one_each(rows: Iterable[Process]) -> list[Process]:
    """A process on two GPUs is one process."""
    return list({(row.pid, row.create_time): row for row in rows}.values())


def told(outcomes: Sequence[tuple[Process, Outcome]], number: int) -> tuple[str, str]:
    """What became of a signal, in one line, and its ink."""
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
    return cut(short_command(process), 24)


def _since(process: Process) -> str:
    if process.create_time is None:
        return UNKNOWN
    return datetime.datetime.fromtimestamp(process.create_time).strftime("%Y-%m-%d %H:%M:%S")


def _who(people: Sequence[Process], room: int) -> Lines:
    if len(people) == 1:
        process = people[0]
        facts = (
            ("pid", str(process.pid), "strong"),
            ("user", printable(process.user) if process.user else UNKNOWN, "text"),
            ("command", command_text(process), "text"),
            ("started", _since(process), "text"),
            ("holds", f"{size(process.number('gpu_memory_bytes'))} of GPU memory", "text"),
        )
        return [[(f" {name:<9}", "dim"), (cut(text, room - 10), ink)] for name, text, ink in facts]
    lines: Lines = []
    for process in people[:_MOST]:
        user = left(printable(process.user) if process.user else UNKNOWN, 9)
        begin = f" {right(str(process.pid), 7)}  "
        rest = f"{_since(process)}  {short_command(process)}"
        lines.append([(begin, "strong"), (user, "text"), ("  ", "text"), (cut(rest, room - len(begin) - 11), "dim")])
    if len(people) > _MOST:
        lines.append([(f" and {len(people) - _MOST} more", "dim")])
    return lines


class _Choices(Sheet):
    """Lines of which only the last ones can be chosen."""

    def __init__(self, lines: Lines, count: int, whom: str) -> None:
        super().__init__(lines, cursor=None)
        self._count = count
        self._whom = whom
        self.choice = _PRESELECTED
        self.insists = True

    def redraw(self) -> None:
        """The cursor is where the choices are, however many lines stand above."""
        self.cursor = len(self._all) - self._count + self.choice if self._count else None
        self.ending = "Esc closes"
        if self._count:
            app = self.app
            key = app.key_name("↵") if isinstance(app, ChoosingApp) else "↵"
            self.ending = f"{key} sends {CHOICES[self.choice][1]} to {self._whom}  Esc leaves it"
        super().redraw()

    def move(self, rows: int) -> None:
        """Among the choices."""
        self.choice = min(max(self.choice + rows, 0), max(self._count - 1, 0))
        self.redraw()

    def choice_at(self, y: int) -> int | None:
        """The choice at a height on screen."""
        number = self.row_at(y) - (len(self._all) - self._count)
        return number if 0 <= number < self._count else None


class SignalSheet(LinesModal[int]):
    """Enter or a double click sends, Esc does not. Nothing is chosen for processes that cannot be identified."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "send", show=False)]

    def __init__(self, people: Sequence[Process], width: int, *, doubt: bool = False) -> None:
        """``doubt``: some pids that the driver lists are not of this PID namespace."""
        room = min(width * 9 // 10, 104) - 4
        lines = _who(people, room)
        refused = [(process, why) for process in people if (why := refusal(process.pid, process.create_time))]
        lines.append([])
        for process, why in refused[:3]:
            lines.append([(f" ✖ {process.pid} gets none: ", "error"), (why, "text")])
        if len(refused) > 3:
            lines.append([(f" ✖ and {len(refused) - 3} more for such reasons", "error")])
        able = len(people) - len(refused)
        if able and doubt:
            text = "some pids here are of another PID namespace: is this the process that you mean?"
            lines += [[(" ▲ ", "warning"), (text, "text")], []]
        if able:
            lines += [[(f"   {name:<6}", "strong"), (text, "dim")] for _, name, text in CHOICES]
        count = len(CHOICES) if able else 0
        super().__init__("Signal", lines)
        whom = f"{able} processes" if able > 1 else f"{people[0].pid} {_short(people[0])}"
        self.sheet = _Choices(lines, count, whom)
        several = f" to {len(people)} processes" if len(people) > 1 else f" to {people[0].pid}"
        self.sheet.border_title = f"Send a signal{several}" if able else "No signal can be sent"
        self._able = bool(able)

    def action_choose(self) -> None:
        """The signal under the cursor."""
        assert isinstance(self.sheet, _Choices)
        self.dismiss(CHOICES[self.sheet.choice][0] if self._able else None)

    def on_click(self, event: events.Click) -> None:
        """A click chooses a signal, a double click sends it."""
        sheet = self.sheet
        assert isinstance(sheet, _Choices)
        inside = sheet.content_region
        if inside.contains(event.screen_x, event.screen_y):
            number = sheet.choice_at(event.screen_y - inside.y)
            if number is not None:
                # A slip of the hand must end nobody.
                sent = sheet.choice == number and event.chain == 2
                sheet.choice = number
                sheet.redraw()
                if sent:
                    self.dismiss(CHOICES[number][0])
            return
        super().on_click(event)
