"""A sheet of lines over the screen: help, evidence, missing readings, and menus."""

from __future__ import annotations

import textwrap
from typing import ClassVar, Generic, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen

from gpuwatch.ui.cells import cut, width_of
from gpuwatch.ui.tabs import TABS
from gpuwatch.ui.widgets.paint import Line, Painted, Span

Lines = list[list[Span]]
Result = TypeVar("Result")


def wrapped(line: list[Span], width: int) -> Lines:
    """``line`` in as many lines as it takes, the text of its last span going on below its start.

    Where that start is far to the right, it goes on near the left: a column of half words is no text.
    """
    if width <= 0 or sum(width_of(text) for text, _ in line) <= width:
        return [line]
    *before, (text, ink) = line
    indent = sum(width_of(part) for part, _ in before)
    if indent <= width // 2:
        parts = textwrap.wrap(text, max(width - indent, 8)) or [""]
        return [[*before, (parts[0], ink)], *([(" " * indent, "text"), (part, ink)] for part in parts[1:])]
    near = 4
    first, rest = "", text.split()
    while rest and width_of(first) + width_of(rest[0]) < width - indent:
        first = f"{first} {rest.pop(0)}".lstrip()
    parts = textwrap.wrap(" ".join(rest), max(width - near, 8))
    return [[*before, (first, ink)], *([(" " * near, "text"), (part, ink)] for part in parts)]


def fitted(line: list[Span], width: int) -> list[Span]:
    """``line`` in one line, the text of its last span cut."""
    *before, (text, ink) = line
    return [*before, (cut(text, max(width - sum(width_of(part) for part, _ in before), 0)), ink)]


def pointed(line: list[Span]) -> list[Span]:
    """The line under the cursor, whose first cell is blank: colour alone would not say which it is."""
    (text, ink), *rest = line
    return [("▶", "focus"), (text[1:], ink), *rest]


class Sheet(Painted, can_focus=True):
    """Lines that scroll; with a cursor when it is a menu, of which each line begins with a blank cell."""

    def __init__(self, lines: Lines, *, cursor: int | None = None) -> None:
        super().__init__(id="sheet")
        self.content = lines
        self._all = lines
        self._top = 0
        self.ending = "Esc closes"
        """What the border says when nothing is left below."""
        self.insists = False
        """Whether it says so even then."""
        self.cursor = cursor
        self._is_menu = cursor is not None

    def _folded(self, width: int) -> Lines:
        """The lines in this width. A choice of a menu is one line, however much there is to say of it."""
        if self._is_menu:
            return [fitted(line, width) for line in self.content]
        return [part for line in self.content for part in wrapped(line, width)]

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """As high as its lines, and no higher."""
        return len(self._folded(width))

    def on_resize(self, event: events.Resize) -> None:
        """Folds the lines to the width, shows what fits."""
        self._all = self._folded(self.size.width)
        self.redraw()

    def redraw(self) -> None:
        """Puts the visible part on screen."""
        room = max(self.size.height, 1)
        if self.cursor is not None:
            self._top = min(max(self._top, self.cursor - room + 1), self.cursor)
        self._top = min(max(self._top, 0), max(len(self._all) - room, 0))
        lines = []
        for number in range(self._top, min(self._top + room, len(self._all))):
            chosen = number == self.cursor
            spans = pointed(self._all[number]) if chosen else self._all[number]
            lines.append(Line(tuple(spans), "cursor" if chosen else ""))
        self.paint(lines)
        below = 0 if self.insists else len(self._all) - self._top - room
        # Names of programs may stand in it, which are no markup.
        self.border_subtitle = Content(f"{below} more below" if below > 0 else self.ending)

    def move(self, rows: int) -> None:
        """Moves the cursor, or scrolls."""
        if self.cursor is not None:
            self.cursor = min(max(self.cursor + rows, 0), len(self._all) - 1)
        else:
            self._top += rows
        self.redraw()

    def row_at(self, y: int) -> int:
        """Number of the line at a height on screen."""
        return self._top + y

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel."""
        event.stop()
        self.move(3 if self.cursor is None else 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel."""
        event.stop()
        self.move(-3 if self.cursor is None else -1)


class LinesModal(ModalScreen[Result], Generic[Result]):
    """Closed by Esc, q, the key that opened it, or a click beside it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1,f", "close", "close", show=False),
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "move(-10)", "page up", show=False),
        Binding("pagedown,space", "move(10)", "page down", show=False),
        Binding("home,g", "move(-100000)", "first", show=False),
        Binding("end,G", "move(100000)", "last", show=False),
    ]

    def __init__(self, title: str, lines: Lines, *, cursor: int | None = None) -> None:
        super().__init__()
        self.sheet = Sheet(lines, cursor=cursor)
        self.sheet.border_title = title.replace("[", r"\[")

    def compose(self) -> ComposeResult:
        """Only the sheet."""
        yield self.sheet

    def action_close(self) -> None:
        """Without a result."""
        self.dismiss(None)

    async def on_key(self, event: events.Key) -> None:
        """The number of a tab leaves a sheet that is only read, for that tab."""
        if self.sheet.cursor is None and event.character is not None and event.character.isdecimal():
            number = int(event.character)
            if 1 <= number <= len(TABS):
                event.stop()
                self.dismiss(None)
                self.app.call_later(self.app.run_action, f"screen.show_tab('{TABS[number - 1].id}')")

    def action_move(self, rows: int) -> None:
        """Arrows and pages."""
        self.sheet.move(rows)

    def on_click(self, event: events.Click) -> None:
        """A click beside the sheet closes it."""
        if not self.sheet.region.contains(event.screen_x, event.screen_y):
            self.dismiss(None)
