"""The sheet of findings and source problems."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from gpuwatch.ui.drawing.wrapping import Lines
from gpuwatch.ui.screens.cause_sheet import CauseSheet
from gpuwatch.ui.screens.lines_modal import LinesModal


class EvidenceModal(LinesModal[None]):
    """Findings with evidence; ``c`` copies the action, ``p`` opens the cause page."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "copy", "copy", show=False),
        Binding("p", "page", "page", show=False),
    ]

    def __init__(self, title: str, lines: Lines, *, action: str, cause: str = "") -> None:
        super().__init__(title, lines)
        self._action = action
        self._cause = cause
        keys = [*(["c copies the action"] if action else []), *(["p cause page"] if cause else [])]
        self.sheet.ending = "  ".join([*keys, "Esc closes"])

    def action_page(self) -> None:
        """Opens the cause page."""
        if self._cause:
            self.app.push_screen(CauseSheet(self._cause))

    def action_copy(self) -> None:
        """Copies the action to the terminal's clipboard."""
        if self._action:
            self.app.copy_to_clipboard(self._action)
            self.sheet.ending = "copied  Esc closes"
            self.sheet.redraw()
