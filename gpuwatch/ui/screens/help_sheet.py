"""All keys as a sheet, in two columns where the width allows."""

from __future__ import annotations

from collections.abc import Callable

from gpuwatch.ui.details.key_help import groups, help_lines
from gpuwatch.ui.drawing.wrapping import Lines
from gpuwatch.ui.screens.lines_modal import LinesModal, Sheet

_WIDEST = 150
"""Beyond this, a key and its meaning are too far apart."""


class Help(Sheet):
    """The groups of keys, laid out for the width."""

    def __init__(self, tab: str, name: Callable[[str], str], *, replay: bool) -> None:
        self._groups = groups(tab, name, replay=replay)
        super().__init__(help_lines(self._groups, 0))

    def _folded(self, width: int) -> Lines:
        return help_lines(self._groups, width)


class HelpSheet(LinesModal[None]):
    """Uses the whole height: all keys fit on 120x40."""

    def __init__(self, tab: str, name: Callable[[str], str], *, replay: bool = False) -> None:
        """``name`` spells a key as the terminal can show it; ``replay``: whether a recording is shown."""
        sheet = Help(tab, name, replay=replay)
        sheet.styles.width = "100%"
        sheet.styles.max_width = _WIDEST
        sheet.styles.max_height = "100%"
        super().__init__("Keys", [], sheet=sheet)
