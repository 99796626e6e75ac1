"""Text measured in terminal cells: cut, padded, shortened by its last clauses; aware of wide characters."""

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


_CLAUSE_ENDS = re.compile(r": |, | while | and (?:has|is|was) | \([^)]*\)(?=$|[:,])")
"""Where a sentence may end: a colon, a comma, a clause, a note in brackets."""
_LAST_OF_LIST = re.compile(r" (?:and|n?or) ")


def _is_complete(text: str, at: int) -> bool:
    """Whether ``text`` says the same up to ``at``: one or two of the causes in ``A, B or C`` are not all of them."""
    head, tail = text[:at].rpartition(": ")[2], text[at:].partition(": ")[0]
    if text[:at].count("(") != text[:at].count(")"):
        return False
    if not tail.startswith(", "):
        return True
    last = _LAST_OF_LIST.search(tail, 1)
    clause = tail.startswith(", and ") and "," not in head  # ``…, and with it its GPUs``
    return (last is None or clause) and not (head[-1:].isdigit() and tail[2:3].isdigit())


def drop_last_clauses(text: str, width: int) -> str:
    """``text`` in ``width`` cells without what its last clauses add; cut only if its first clause does not fit."""
    if width_of(text) <= width:
        return text
    parts = (text[: found.start()] for found in _CLAUSE_ENDS.finditer(text) if _is_complete(text, found.start()))
    fitting = [part for part in parts if width_of(part) <= width]
    return fitting[-1] if fitting else cut_to_width(text, width)
