"""Sheets of facts that end in a few choices; Enter takes one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar, Generic, NamedTuple

from textual import events
from textual.binding import Binding, BindingType

from gpuwatch.ui.drawing.styled_lines import Span
from gpuwatch.ui.drawing.text_width import cut_to_width
from gpuwatch.ui.drawing.wrapping import SpanLines, wrap_line
from gpuwatch.ui.screens.sheet import LinesModal, Result, Sheet
from gpuwatch.ui.widgets.preferences_app import key_name


class ChoiceSheet(Sheet):
    """Lines of which only the last ones can be selected."""

    def __init__(self, lines: SpanLines, does: Sequence[str], chosen: int) -> None:
        """``does``: what Enter does on each choice (``sends TERM to 4711``); empty if there is no choice."""
        super().__init__(lines, cursor=None)
        self._does = tuple(does)
        self.choice = chosen
        self.always_shows_ending = True
        self._starts: list[int] = []
        """The line in which each choice begins."""
        self._raised = 0
        """Lines by which what stands above the choices was scrolled into view."""

    def resized(self) -> None:
        """Wraps the lines to the new width, and finds the choices among them."""
        heights = [len(wrap_line(line, self.size.width)) for line in self.content]
        self._starts = list(accumulate(heights, initial=0))[len(heights) - len(self._does) : -1]
        super().resized()

    def _draw(self, width: int, height: int) -> None:
        # The cursor stays on a choice, and all choices in view, however many lines are above.
        shown = self._starts[self.choice : self.choice + 1]
        self.cursor = shown[0] if shown else None
        self.ending = "Esc closes"
        if shown:
            self.top = max(self.count - height - self._raised, 0)
            behind = "  Esc cancels"
            does = cut_to_width(f"{key_name(self, '↵')} {self._does[self.choice]}", width - len(behind) - 2)
            self.ending = does + behind
        super()._draw(width, height)

    def with_cursor(self, line: list[Span]) -> list[Span]:
        """The choice that Enter takes says so."""
        return [*super().with_cursor(line), ("  Enter", "key")]

    def move_by(self, rows: int) -> None:
        """Moves the cursor among the choices; above the first one, scrolls to the facts."""
        hidden = max(self.count - self.size.height, 0)
        self._raised = min(self._raised + 1, hidden) if rows < 0 and self.choice == 0 else 0
        self.choice = min(max(self.choice + rows, 0), max(len(self._does) - 1, 0))
        self.redraw()

    def choice_at(self, row: int) -> int | None:
        """The choice that a line belongs to; None above the first."""
        return next((number for number, start in reversed(list(enumerate(self._starts))) if row >= start), None)


class Choice(NamedTuple):
    """A line that can be taken."""

    name: str
    text: str
    does: str
    """What Enter does there: ``sends TERM to 4711``."""
    key: str = ""


class ChoiceModal(LinesModal[Result], Generic[Result]):
    """Enter or a double click takes a choice, and so does its key; a single click only moves the cursor. ``n`` closes.

    The first choice does nothing, and is usually preselected: Enter harms nobody who expects another sheet.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "choose", show=False),
        Binding("n", "close", "close", show=False),
    ]

    def __init__(self, title: str, lines: SpanLines, choices: Sequence[Choice], chosen: int = 0) -> None:
        width = max((len(choice.name) for choice in choices), default=0)
        self._numbers = {choice.key: number for number, choice in enumerate(choices) if choice.key}
        lines = lines + [
            [(f"   {name:<{width}}", "strong"), (f"  {text}", "dim"), (f"  {key}" * bool(key), "key")]
            for name, text, _, key in choices
        ]
        self._choices = ChoiceSheet(lines, [choice.does for choice in choices], chosen)
        super().__init__(title, lines, sheet=self._choices)

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
        sheet = self._choices
        number = sheet.choice_at(row)
        if number is not None:
            taken = sheet.choice == number and event.chain == 2
            sheet.choice = number
            sheet.redraw()
            if taken:
                self.take(number)
