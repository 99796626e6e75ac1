"""Sheets of facts that end in a few choices; Enter takes one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Generic

from textual import events
from textual.binding import Binding, BindingType

from gpuwatch.ui.drawing.wrapping import Lines
from gpuwatch.ui.screens.lines_modal import LinesModal, Sheet
from gpuwatch.ui.screens.modal import Result
from gpuwatch.ui.widgets.preferences_app import PreferencesApp


class ChoiceSheet(Sheet):
    """Lines of which only the last ones can be selected."""

    def __init__(self, lines: Lines, does: Sequence[str], chosen: int) -> None:
        """``does``: what Enter does on each choice (``sends TERM to 4711``); empty if there is no choice."""
        super().__init__(lines, cursor=None)
        self._does = tuple(does)
        self.choice = chosen
        self.insists = True

    def _draw(self, width: int, height: int) -> None:
        # The cursor stays on a choice, however many lines are above.
        count = len(self._does)
        self.cursor = len(self._all) - count + self.choice if count else None
        self.ending = "Esc closes"
        if count:
            app = self.app
            key = app.key_name("↵") if isinstance(app, PreferencesApp) else "↵"
            self.ending = f"{key} {self._does[self.choice]}  Esc cancels"
        super()._draw(width, height)

    def move(self, rows: int) -> None:
        """Moves the cursor among the choices."""
        self.choice = min(max(self.choice + rows, 0), max(len(self._does) - 1, 0))
        self.redraw()

    def choice_at(self, y: int) -> int | None:
        """The choice at a screen row; None if there is none."""
        number = self.row_at(y) - (len(self._all) - len(self._does))
        return number if 0 <= number < len(self._does) else None


class ChoiceModal(LinesModal[Result], Generic[Result]):
    """Enter or a double click takes a choice; a single click only moves the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "choose", show=False)]

    def __init__(self, title: str, lines: Lines, does: Sequence[str], preselected: int) -> None:
        """``does``: see :class:`ChoiceSheet`."""
        self._choices = ChoiceSheet(lines, does, preselected)
        super().__init__(title, lines, sheet=self._choices)

    def take(self, number: int) -> None:
        """Closes with the result of a choice."""
        raise NotImplementedError

    def action_choose(self) -> None:
        """Takes the choice under the cursor."""
        self.take(self._choices.choice)

    def on_click(self, event: events.Click) -> None:
        """A click selects a choice, a double click takes it, one outside closes the sheet."""
        sheet = self._choices
        if not sheet.content_region.contains(event.screen_x, event.screen_y):
            super().on_click(event)
            return
        number = sheet.choice_at(event.screen_y - sheet.content_region.y)
        if number is not None:
            taken = sheet.choice == number and event.chain == 2
            sheet.choice = number
            sheet.redraw()
            if taken:
                self.take(number)
