"""Cells of CSV files that spreadsheets open as they are."""

from __future__ import annotations

import re

from gpuwatch.core.safe_text import printable

_NUMBER = re.compile(r"-?\d{1,300}(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?")
_FORMULA = frozenset("=+-@＝＋－＠|%")


def safe_cell(value: object) -> object:
    """The value of a cell: no text of it is run as a formula."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, (int, float)):
        return value
    text = printable(str(value))
    if _NUMBER.fullmatch(text):
        return text
    # A spreadsheet would run such a cell as a formula; some accept full-width signs too.
    return f"'{text}" if text.lstrip()[:1] in _FORMULA else text
