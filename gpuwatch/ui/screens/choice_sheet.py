"""A sheet of facts that ends in a few choices; Enter takes one."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.ui.drawing.wrapping import Lines
from gpuwatch.ui.screens.lines_modal import Sheet
from gpuwatch.ui.widgets.preferences_app import PreferencesApp


class ChoiceSheet(Sheet):
    """Lines of which only the last ones can be selected."""

    def __init__(self, lines: Lines, does: Sequence[str], chosen: int) -> None:
        """``does``: what Enter does on each choice (``sends TERM to 4711``); empty if there is no choice."""
        super().__init__(lines, cursor=None)
        self._does = tuple(does)
        self.choice = chosen
        self.insists = True

    def redraw(self) -> None:
        """Keeps the cursor on a choice, however many lines are above."""
        count = len(self._does)
        self.cursor = len(self._all) - count + self.choice if count else None
        self.ending = "Esc closes"
        if count:
            app = self.app
            key = app.key_name("↵") if isinstance(app, PreferencesApp) else "↵"
            self.ending = f"{key} {self._does[self.choice]}  Esc cancels"
        super().redraw()

    def move(self, rows: int) -> None:
        """Moves the cursor among the choices."""
        self.choice = min(max(self.choice + rows, 0), max(len(self._does) - 1, 0))
        self.redraw()

    def choice_at(self, y: int) -> int | None:
        """The choice at a screen row; None if there is none."""
        number = self.row_at(y) - (len(self._all) - len(self._does))
        return number if 0 <= number < len(self._does) else None
