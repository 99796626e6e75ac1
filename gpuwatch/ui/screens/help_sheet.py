"""All keys as a sheet, in two columns where the width allows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gpuwatch.ui.details.key_help import groups, help_lines
from gpuwatch.ui.screens.sheet import LinesModal, Sheet

_MAX_WIDTH_COLUMNS = 150
"""Beyond this, a key and its meaning are too far apart."""


class HelpSheet(LinesModal[None]):
    """Uses the whole height: all keys fit on 120x40."""

    def __init__(self, tab: str, name: Callable[[str], str], *, replay: bool = False) -> None:
        """``name`` spells a key as the terminal can show it; ``replay``: whether a recording is shown."""
        found = groups(tab, name, replay=replay)
        sheet = Sheet(help_lines(found, 0), fold=partial(help_lines, found))
        sheet.styles.width = "100%"
        sheet.styles.max_width = _MAX_WIDTH_COLUMNS
        sheet.styles.max_height = "100%"
        super().__init__("Keys", [], sheet=sheet)
