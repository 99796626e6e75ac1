"""The sheet of findings and source problems."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from gpuwatch.core.model.findings import Finding
from gpuwatch.ui.details.finding_lines import Entry, action_of, cause_of
from gpuwatch.ui.drawing.wrapping import Lines
from gpuwatch.ui.screens.cause_sheet import CauseSheet
from gpuwatch.ui.screens.lines_modal import LinesModal


class EvidenceModal(LinesModal[None]):
    """Findings with evidence; ``c`` copies the action, ``p`` opens the cause page."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "copy", "copy", show=False),
        Binding("p", "page", "page", show=False),
    ]

    def __init__(self, title: str, lines: Lines, entry: Entry | None) -> None:
        """``entry``: whose action and cause page the keys are for."""
        action = action_of(entry) if entry is not None else ""
        super().__init__(title, lines, to_copy=action)
        self._cause = cause_of(entry) if isinstance(entry, Finding) else ""
        keys = [*(["c copies the action"] if action else []), *(["p cause page"] if self._cause else [])]
        self.sheet.ending = "  ".join([*keys, "Esc closes"])

    def action_page(self) -> None:
        if self._cause:
            self.app.push_screen(CauseSheet(self._cause))
