"""A scrolling list in a frame: of lines, of items with a cursor, of titled sections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar, overload

from textual import events
from textual.app import App
from textual.message import Message
from textual.screen import ModalScreen

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.ui.drawing.line_builder import LineBuilder, scroll_thumb, with_border
from gpuwatch.ui.drawing.styled_lines import Line, Span, SpanLines, spans_width, wrap_line
from gpuwatch.ui.drawing.text_width import width_of
from gpuwatch.ui.tables.filter_language import WordFilter
from gpuwatch.ui.widgets.painted_pane import JumpTarget
from gpuwatch.ui.widgets.preferences_app import key_name
from gpuwatch.ui.widgets.scrolling_pane import ScrollingPane

Item = TypeVar("Item")
WAITING = Line((("  ◌ ", "dim"), ("waiting for the driver's first answer", "dim")))
NO_MATCH = Line((("  no match; Esc clears it", "dim"),))


def is_sheet_open(app: App[object]) -> bool:
    """Whether a sheet covers the tab; an app that closes has no screens any more."""
    return any(isinstance(screen, ModalScreen) for screen in app.screen_stack[-1:])


class LazyLines(Sequence[Line]):
    """Lines that are drawn when they come into view."""

    def __init__(self, count: int, draw: Callable[[int], Line]) -> None:
        self._places = range(count)
        self._draw = draw

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> Line: ...

    @overload
    def __getitem__(self, place: slice) -> list[Line]: ...

    def __getitem__(self, place: int | slice) -> Line | list[Line]:
        found = self._places[place]
        return self._draw(found) if isinstance(found, int) else [self._draw(number) for number in found]


class ScrollList(ScrollingPane, can_focus=True):
    """Scrolling lines. Subclasses call :meth:`set_lines` and may change how the cursor's line looks.

    Without a frame (on small terminals) there is no title, unless ``headed``.
    """

    note = ""
    framed = True
    headed = False
    """Whether the title gets its own line if there is no frame."""
    content: Sequence[Line] = ()
    stale = False
    """Whether the lines are of data that get old: not yet what is painted, so that a change of it shows."""
    head: Sequence[Line] = ()
    """Fixed lines above the list."""

    def __init__(self, title: str = "", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.title: list[Span] = [(title, "title")]

    @property
    def counts(self) -> tuple[int, int]:
        """Lines that match the filter, and all lines, of a list that can be filtered."""
        return 0, 0

    @property
    def room(self) -> int:
        """Lines of the list that fit."""
        return max(self.size.height - 2 * int(self.framed) - len(self._above), 1)

    @property
    def _above(self) -> Sequence[Line]:
        if self.framed or not self.headed:
            return self.head
        builder = LineBuilder(self.inner_width)
        builder.add(" ", "header")
        for text, _ in self.title:
            builder.add(text, "header")
        builder.fill_to(self.inner_width - width_of(self.note), style="header").add(self.note, "header")
        return [builder.fill_to(self.inner_width, style="header").line(), *self.head]

    @property
    def inner_width(self) -> int:
        """Cells inside the frame."""
        return max(self.size.width - 2 * int(self.framed), 1)

    @property
    def covered(self) -> bool:
        """Whether a sheet is open: beside it, the mark of this cursor would seem to be the sheet's."""
        return is_sheet_open(self.app)

    def set_lines(self, content: Sequence[Line], *, stale: bool = False) -> None:
        """Shows lines; keeps cursor and scroll position."""
        self.content, self.stale = content, stale
        if self.cursor is not None:
            self.cursor = min(self.cursor, max(len(content) - 1, 0))
        self.redraw()

    @property
    def count(self) -> int:
        return len(self.content)

    def move(self, where: str) -> None:
        """``up``, ``down``, ``page_up``, ``page_down``, ``home``, ``end``."""
        page = max(self.room - 1, 1)
        steps = {"up": -1, "down": 1, "page_up": -page, "page_down": page, "home": -(10**6), "end": 10**6}
        if where in steps:
            self.move_by(steps[where])

    def jump_targets(self) -> list[JumpTarget]:
        """The visible lines, if there is a cursor."""
        if self.cursor is None:
            return []
        inset, shown = int(self.framed), range(self.top, min(self.top + self.room, len(self.content)))
        above = inset + len(self._above)
        return [(inset, above + number - self.top, partial(self._jump, number)) for number in shown]

    def _jump(self, number: int, opens: bool) -> None:
        self.put_cursor(number)
        self.rebuild()
        if opens:
            self.choose()

    def rebuild(self) -> None:
        """Rebuilds the lines after a change of width, focus or cursor."""
        self.redraw()

    def _draw(self, width: int, height: int) -> None:
        self.limit_top()
        lines = [*self._above, *self.in_view()]
        if self.framed:
            bar = scroll_thumb(self.top, self.room, len(self.content))
            lines = with_border(
                lines,
                width,
                height,
                title=self.title,
                note=self.note,
                focused=self.has_focus,
                scroll_bar=bar,
                scroll_bar_top=len(self._above),
            )
        self.paint(lines, stale=self.stale)

    def in_view(self) -> list[Line]:
        """The lines of the list that are shown."""
        shown = enumerate(self.content[self.top : self.top + self.room], self.top)
        marked = None if self.covered else self.cursor
        return [self.with_cursor(line) if number == marked else line for number, line in shown]

    def with_cursor(self, line: Line) -> Line:
        """The line under the cursor; its first two cells hold the mark."""
        (first, style), *rest = line.spans or (("  ", "text"),)
        style = "focus" if self.has_focus else "dim"
        used = width_of(first) + spans_width(rest)
        spans = (("▶ ", style), (first[2:], line.spans[0][1] if line.spans else "text"), *rest)
        return Line((*spans, (" " * max(self.inner_width - used, 0), "text")), self.has_focus)

    # Events

    def resized(self) -> None:
        """Rebuilds the lines for the new width; keeps the cursor visible."""
        self.bring_into_view()
        self.rebuild()

    def turn_wheel(self, rows: int) -> bool:
        """Scrolls without moving the cursor."""
        self.top += rows
        self.redraw()
        return True

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor, a double click opens; the right edge is a scroll bar."""
        y = event.y - int(self.framed) - len(self._above)
        if not 0 <= y < self.room:
            return
        if self.framed and event.x >= self.size.width - 1 and self.count > self.room:
            self.top = y * self.count // self.room
            self.redraw()
        elif self.cursor is not None and self.top + y < self.count:
            self.put_cursor(self.top + y)
            self.rebuild()
            if event.chain == 2:
                self.choose()


class ItemList(ScrollList, Generic[Item]):
    """One line for each item, and a cursor; without items, a line that says why."""

    class CursorMoved(Message):
        """The cursor was put on an item, by whatever key, click or jump: what is shown of the item changes."""

    cursor = 0
    total = 0
    """Number of items without a filter."""

    def __init__(self, title: str, *, id: str | None = None) -> None:
        super().__init__(title, id=id)
        self.items: list[Item] = []

    @property
    def counts(self) -> tuple[int, int]:
        return len(self.items), self.total

    @property
    def item_under_cursor(self) -> Item | None:
        place = self.cursor or 0
        return self.items[place] if place < len(self.items) else None

    def put_cursor(self, number: int) -> None:
        super().put_cursor(number)
        self.post_message(self.CursorMoved())

    def set_items(self, items: list[Item], key: Callable[[Item], object], *, follow_first: bool = False) -> None:
        """Replaces the items; the cursor stays with the item of its ``key``, or on the first line if it is there."""
        before = self.item_under_cursor if self.cursor or follow_first else None
        self.items = items
        places = {key(item): place for place, item in reversed(list(enumerate(items)))}
        if before is not None:
            self.cursor = places.get(key(before), self.cursor)
        self.rebuild()

    def with_cursor(self, line: Line) -> Line:
        """The line under the cursor; no cursor while the list is empty."""
        return super().with_cursor(line) if self.items else line


class TextPane(ScrollList, can_focus=False):
    """Lines to read, one cell from the left edge."""

    def set_text(self, text: SpanLines, *, stale: bool = False) -> None:
        self.set_lines([Line(((" ", "text"), *line)) for line in text], stale=stale)


class SectionsPane(ScrollList):
    """Titled sections. Without a frame, which has a scroll bar, what does not fit is left out whole, and counted."""

    _counts = (0, 0)
    _starts: Sequence[int] = ()
    """Lines before which the text may end: not inside what was wrapped, nor between a heading and what it announces."""

    @property
    def counts(self) -> tuple[int, int]:
        return self._counts

    def show_sections(
        self, sections: list[tuple[str, SpanLines]], *, stale: bool, wanted: WordFilter | None = None
    ) -> None:
        """Shows sections, each under its title; ``wanted``: only lines that match, and their titles."""
        every = sum(len(lines) for _, lines in sections)
        if wanted is not None:
            sections = [
                (title, [line for line in lines if wanted("".join(text for text, _ in line))])
                for title, lines in sections
            ]
            sections = [section for section in sections if section[1]]
        self._counts = sum(len(lines) for _, lines in sections), every
        room = max(self.inner_width - 2, 10)
        text: SpanLines = []
        self._starts = starts = []
        for title, lines in sections:
            starts.append(len(text))
            if text:
                text.append([])
            text.append([(title, "title")])
            announced = True
            for line in lines:
                if not announced:
                    starts.append(len(text))
                announced = line[-1][0].endswith(":") if line else False
                text += wrap_line(line, room)
        drawn = [LineBuilder(self.inner_width).add(" ").add_spans(line).line() for line in text]
        self.set_lines(drawn or [NO_MATCH], stale=stale)

    def in_view(self) -> list[Line]:
        """Without the beginning of what does not fit."""
        shown, end = super().in_view(), self.top + self.room
        if self.framed or end >= len(self.content):
            return shown
        last = max((start for start in self._starts if self.top < start < end), default=end - 1)
        keys = key_name(self, "↓" if self.has_focus else "Tab ↓")
        more = Line(((f" … {count_text(len(self.content) - last, 'more line')}  ", "dim"), (keys, "key")))
        return [*shown[: last - self.top], more]

    def go(self, title: str) -> None:
        self.top = next((number for number, line in enumerate(self.content) if (title, "title") in line.spans), 0)
        self.redraw()
