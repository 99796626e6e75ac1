"""Bases of the sheets, which open over a screen: of lines (help, evidence, missing readings, menus), or of actions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen

from gpuwatch.ui.drawing.styled_lines import Line, Span, SpanLines, cut_line, wrap_line, wrap_lines
from gpuwatch.ui.drawing.text_width import cut_to_width
from gpuwatch.ui.settings.tabs import TABS
from gpuwatch.ui.widgets.preferences_app import key_name
from gpuwatch.ui.widgets.scrolling_pane import ScrollingPane, TypeAhead

Result = TypeVar("Result")


def sheet_bindings(actions: Mapping[str, str]) -> list[BindingType]:
    """Textual bindings of a sheet: an action by its keys. No footer shows them."""
    return [Binding(keys, action, show=False) for keys, action in actions.items()]


class SheetScreen(ModalScreen[Result], Generic[Result]):
    """The screen of a sheet. It closes only once, however many keys and clicks are queued.

    Keys typed in one burst are queued before the first one is handled, and Textual's own ``dismiss`` pops
    whatever screen is on top: a second one would close the tab below, or the last screen.
    """

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Closes the sheet with a result; does nothing if it is not on top, for example already closed."""
        if self.app.screen is not self:
            done: AwaitComplete = AwaitComplete.nothing()  # type: ignore[no-untyped-call]
            return done
        return super().dismiss(result)

    def action_close(self) -> None:
        self.dismiss(None)


class SheetPane(ScrollingPane, can_focus=True):
    """The scrolling lines in a sheet; a menu also has a cursor, and its lines begin with a blank cell."""

    def __init__(
        self,
        lines: SpanLines,
        *,
        cursor: int | None = None,
        wrap: Callable[[int], SpanLines] | None = None,
        notes: Callable[[int], list[Line]] = lambda width: [],
    ) -> None:
        """``wrap``: makes the lines for a width, instead of wrapping them; ``notes``: those that stay at the bottom."""
        super().__init__(id="sheet")
        self._wrap_to, self._notes = wrap, notes
        self.content = lines
        self._wrapped = lines
        self.ending = "Esc closes"
        """Text in the border when nothing is left below."""
        self.always_shows_ending = False
        """Whether to show :attr:`ending` even if more lines follow."""
        self.cursor = cursor
        self._is_menu = cursor is not None

    def _wrap(self, width: int) -> SpanLines:
        """The lines wrapped to a width; lines of a menu are cut instead."""
        if self._wrap_to is not None:
            return self._wrap_to(width)
        if self._is_menu:
            return [cut_line(line, width) for line in self.content]
        return wrap_lines(self.content, width)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return len(self._wrap(width)) + len(self._notes(width))

    @property
    def count(self) -> int:
        return len(self._wrapped)

    @property
    def room(self) -> int:
        return max(self.size.height - len(self._notes(self.size.width)), 1)

    def replace(self, lines: SpanLines) -> None:
        """Shows other lines from the same place on."""
        if lines != self.content:
            self.content = lines
            self.refresh(layout=True)
            self.resized()

    def resized(self) -> None:
        self._wrapped = self._wrap(self.size.width)
        self.redraw()

    def _draw(self, width: int, height: int) -> None:
        notes = self._notes(width)
        room = self.room
        self.bring_into_view()
        self.limit_top()
        lines = []
        for number in range(self.top, min(self.top + room, self.count)):
            chosen = number == self.cursor
            spans = self.with_cursor(self._wrapped[number]) if chosen else self._wrapped[number]
            lines.append(Line(tuple(spans), chosen))
        self.paint([*lines, *([Line(())] * (room - len(lines)) + notes if notes else [])])
        below = 0 if self.always_shows_ending else self.count - self.top - room
        # Content, not markup: it may contain program names.
        self.border_subtitle = Content(f"{below} more below  " * (below > 0) + self.ending)

    def with_cursor(self, line: list[Span]) -> list[Span]:
        """The line under the cursor, with a mark in its blank first cell: color alone is not enough."""
        (text, style), *rest = line
        return [("▶", "focus"), (text[1:], style), *rest]

    def row_at(self, y: int) -> int | None:
        """The line drawn at ``y``; None below the last one, and on what stays at the bottom."""
        row = self.top + y
        return row if y < self.room and row < self.count else None

    def turn_wheel(self, rows: int) -> bool:
        """Moves the cursor by one line, or scrolls."""
        self.move_by(rows if self.cursor is None else rows // abs(rows))
        return True


class LinesSheet(SheetScreen[Result], Generic[Result]):
    """A sheet of lines. Esc, q, F1, ?, a click outside and the ``keys`` of the sheet close it."""

    BINDINGS = sheet_bindings(
        {
            "escape,q,question_mark,f1": "close",
            "up,k": "move(-1)",
            "down,j": "move(1)",
            "pageup": "move(-10)",
            "pagedown,space": "move(10)",
            "home,g": "move(-100000)",
            "end,G": "move(100000)",
        }
    )

    def __init__(
        self,
        title: str,
        lines: SpanLines,
        *,
        cursor: int | None = None,
        pane: SheetPane | None = None,
        to_copy: str = "",
        keys: Mapping[str, Result | None] | None = None,
    ) -> None:
        """``to_copy``: what ``c`` copies to the terminal's clipboard; ``keys``: those that close it, with a result."""
        super().__init__()
        self._keys = dict(keys or {})
        self._type_ahead = TypeAhead()
        self._typing_filter = False
        """Whether the user types a filter as in a table, although sheets have none: its letters are then no keys."""
        self.pane = pane or SheetPane(lines, cursor=cursor)
        self.pane.border_title = title.replace("[", r"\[")
        self._to_copy = to_copy

    def compose(self) -> ComposeResult:
        yield self.pane

    async def on_key(self, event: events.Key) -> None:
        """A key of this sheet closes it, and so does a tab's number, which opens that tab, if there is no cursor."""
        if event.key in self._keys:
            event.stop()
            self.dismiss(self._keys[event.key])
        elif event.is_printable and event.character and self._goes_to(event.character):
            event.stop()
        elif event.character == "/" or (self._typing_filter and event.is_printable):  # a word for a filter is no keys
            event.stop()
            self._typing_filter = True
            self.pane.ending, self.pane.always_shows_ending = "nothing to filter here  Esc closes", True
            self.pane.redraw()
        elif event.key == "c" and self._to_copy:
            event.stop()
            self.app.copy_to_clipboard(self._to_copy)
            self.pane.ending = "copied  Esc closes"
            self.pane.redraw()
        elif self.pane.cursor is None and event.character is not None and event.character.isdecimal():
            number = int(event.character)
            if 1 <= number <= len(TABS):
                event.stop()
                self.dismiss(None)
                self.app.call_later(self.app.run_action, f"screen.show_tab('{TABS[number - 1].id}')")

    @property
    def names(self) -> Sequence[str]:
        """Names of a menu's lines, to be typed."""
        return ()

    def _goes_to(self, char: str) -> bool:
        """Puts the cursor on the line whose name begins with or has what was typed; False if the character is a key.

        In a menu letters are never keys: a word that no name has would close it, and run keys of what is below.
        """
        if not self.names:
            return False
        found = self._type_ahead.find_line(self.names, char, self.pane.cursor or 0)
        if found is not None:
            self.pane.move_by(found - (self.pane.cursor or 0))
        elif not self._type_ahead.continues_name(char):
            return False
        else:
            self.app.bell()
        return True

    def action_move(self, rows: int) -> None:
        self._type_ahead.forget()
        self.pane.move_by(rows)

    def on_click(self, event: events.Click) -> None:
        """A click outside closes the sheet."""
        inside = self.pane.content_region
        if not self.pane.region.contains(event.screen_x, event.screen_y):
            self.dismiss(None)
        elif inside.contains(event.screen_x, event.screen_y):
            row = self.pane.row_at(event.screen_y - inside.y)
            if row is not None:
                self.clicked(row, event)

    def clicked(self, row: int, event: events.Click) -> None:
        """Called for a click on a line."""


class ActionPane(SheetPane):
    """Lines of which only the last ones can be selected."""

    def __init__(self, lines: SpanLines, effects: Sequence[str], chosen: int) -> None:
        """``effects``: what Enter does on each choice (``sends TERM to 4711``); empty if there is no choice."""
        super().__init__(lines, cursor=None)
        self._effects = tuple(effects)
        self.choice = chosen
        self.always_shows_ending = True
        self._starts: list[int] = []
        """The line in which each choice begins."""
        self._lines_scrolled_up = 0
        """Lines above the choices that were scrolled into view."""

    def resized(self) -> None:
        """Wraps the lines to the new width, and finds the choices among them."""
        heights = [len(wrap_line(line, self.size.width)) for line in self.content]
        self._starts = list(accumulate(heights, initial=0))[len(heights) - len(self._effects) : -1]
        super().resized()

    def _draw(self, width: int, height: int) -> None:
        # The cursor stays on a choice, and all choices in view, however many lines are above.
        shown = self._starts[self.choice : self.choice + 1]
        self.cursor = shown[0] if shown else None
        self.ending = "Esc closes"
        if shown:
            self.top = max(self.count - height - self._lines_scrolled_up, 0)
            behind = "  Esc cancels"
            effect = cut_to_width(f"{key_name(self, '↵')} {self._effects[self.choice]}", width - len(behind) - 2)
            self.ending = effect + behind
        super()._draw(width, height)

    def with_cursor(self, line: list[Span]) -> list[Span]:
        """The choice that Enter takes says so."""
        return [*super().with_cursor(line), ("  Enter", "key")]

    def move_by(self, rows: int) -> None:
        """Moves the cursor among the choices; above the first one, scrolls to the facts."""
        hidden = max(self.count - self.size.height, 0)
        self._lines_scrolled_up = min(self._lines_scrolled_up + 1, hidden) if rows < 0 and self.choice == 0 else 0
        self.choice = min(max(self.choice + rows, 0), max(len(self._effects) - 1, 0))
        self.redraw()

    def choice_at(self, row: int) -> int | None:
        """The choice that a line belongs to; None above the first."""
        return next((number for number, start in reversed(list(enumerate(self._starts))) if row >= start), None)


class SheetAction(NamedTuple):
    """A line of a sheet that can be chosen."""

    name: str
    text: str
    effect: str
    """What Enter does there: ``sends TERM to 4711``."""
    key: str = ""


class ActionSheet(LinesSheet[Result], Generic[Result]):
    """Enter or a double click takes a choice, and so does its key; a single click only moves the cursor. ``n`` closes.

    The first choice does nothing, and is usually preselected: Enter harms nobody who expects another sheet.
    """

    BINDINGS = sheet_bindings({"enter": "choose", "n": "close"})

    def __init__(self, title: str, lines: SpanLines, choices: Sequence[SheetAction], chosen: int = 0) -> None:
        width = max((len(choice.name) for choice in choices), default=0)
        self._numbers = {choice.key: number for number, choice in enumerate(choices) if choice.key}
        lines = lines + [
            [(f"   {name:<{width}}", "strong"), (f"  {text}", "dim"), (f"  {key}" * bool(key), "key")]
            for name, text, _, key in choices
        ]
        self._choices = ActionPane(lines, [choice.effect for choice in choices], chosen)
        super().__init__(title, lines, pane=self._choices)

    async def on_key(self, event: events.Key) -> None:
        """The key of a choice takes it."""
        number = self._numbers.get(event.key, 0 if event.key == "y" else None)  # y closes where there is no choice
        if number is not None:
            event.stop()
            self.take(number)

    @abstractmethod
    def take(self, number: int) -> None:
        """Closes with the result of a choice."""

    def action_choose(self) -> None:
        self.take(self._choices.choice)

    def clicked(self, row: int, event: events.Click) -> None:
        pane = self._choices
        number = pane.choice_at(row)
        if number is not None:
            taken = pane.choice == number and event.chain == 2
            pane.choice = number
            pane.redraw()
            if taken:
                self.take(number)
