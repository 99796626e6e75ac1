"""Sheets about findings: their evidence, and the page of a cause."""

from __future__ import annotations

from collections.abc import Callable

from gpuwatch.explain.diagnosis.reference.cause_pages import page
from gpuwatch.ui.details.finding_lines import Entry, action_of, cause_of, page_lines
from gpuwatch.ui.drawing.styled_lines import SpanLines
from gpuwatch.ui.screens.sheet_bases import LinesSheet, sheet_bindings


class CauseSheet(LinesSheet[None]):
    """What ``gpuwatch cause ID`` prints."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"gpuwatch cause {cause}", page_lines(page(cause)))


class EvidenceSheet(LinesSheet[None]):
    """Findings with evidence, as they are now; ``c`` copies the action, ``p`` opens the cause page."""

    BINDINGS = sheet_bindings({"p": "page", "f": "close"})

    def __init__(self, title: str, read: Callable[[], tuple[SpanLines, Entry | None]]) -> None:
        """``read``: the lines, and the entry whose action and cause page the keys are for; asked once a second."""
        lines, entry = read()
        super().__init__(title, lines)
        self._read = read
        self._take_entry(entry)

    def on_mount(self) -> None:
        """What it says changes while it is read: times, values, new findings."""
        self.set_interval(1.0, self._refresh_entry)

    def _refresh_entry(self) -> None:
        lines, entry = self._read()
        if lines != self.sheet.content:
            self._take_entry(entry)
            self.sheet.replace(lines)

    def _take_entry(self, entry: Entry | None) -> None:
        self._to_copy, self._cause = action_of(entry), cause_of(entry)
        keys = [*(["c copies the action"] if self._to_copy else []), *(["p cause page"] if self._cause else [])]
        self.sheet.ending = "  ".join([*keys, "Esc closes"])

    def action_page(self) -> None:
        if self._cause:
            self.app.push_screen(CauseSheet(self._cause))
