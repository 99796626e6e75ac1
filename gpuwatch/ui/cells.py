"""Text in terminal cells: cutting and padding that know wide characters."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size


def width_of(text: str) -> int:
    """Cells that ``text`` takes on screen."""
    return len(text) if text.isascii() else cell_len(text)


def cut(text: str, width: int) -> str:
    """At most ``width`` cells, with an ellipsis where something was cut."""
    if width <= 0:
        return ""
    if width_of(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 1 else "…"


def left(text: str, width: int) -> str:
    """Exactly ``width`` cells, text at the left."""
    text = cut(text, width)
    return text + " " * (width - width_of(text))


def right(text: str, width: int) -> str:
    """Exactly ``width`` cells, text at the right; numbers line up at their end."""
    text = cut(text, width)
    return " " * (width - width_of(text)) + text
