"""Text measured in terminal cells: cutting and padding, aware of wide characters."""

from __future__ import annotations

import re

from rich.cells import cell_len, set_cell_size


def width_of(text: str) -> int:
    """Cells that ``text`` occupies on screen."""
    return len(text) if text.isascii() else cell_len(text)


def cut_to_width(text: str, width: int) -> str:
    """At most ``width`` cells, with an ellipsis where text was cut."""
    if width <= 0:
        return ""
    if width_of(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 1 else "…"


def cut_middle(text: str, width: int) -> str:
    """At most ``width`` cells: the end of a name tells it from its neighbors, so its middle gives way to an ellipsis.

    ``H100…HBM3``; the last word stays whole if it leaves three cells before it.
    """
    size = width_of(text)
    if size <= width or width < 4:
        return cut_to_width(text, width)
    last = re.split(r"[ -]", text)[-1]
    end = last if width_of(last) <= width - 3 else text[-((width - 1) // 2) :]
    return set_cell_size(text, width - 1 - width_of(end)).rstrip(" -") + "…" + end


def align_left(text: str, width: int) -> str:
    """Exactly ``width`` cells, left-aligned."""
    text = cut_to_width(text, width)
    return text + " " * (width - width_of(text))


def align_right(text: str, width: int) -> str:
    """Exactly ``width`` cells, right-aligned, as numbers are."""
    text = cut_to_width(text, width)
    return " " * (width - width_of(text)) + text
