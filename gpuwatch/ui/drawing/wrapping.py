"""Lines wrapped or cut to a width, and sentences shortened by their last clauses. Pure."""

from __future__ import annotations

import re
import textwrap

from gpuwatch.ui.drawing.styled_lines import Span
from gpuwatch.ui.drawing.text_width import cut_to_width, width_of

SpanLines = list[list[Span]]
"""Lines as lists of spans, for sheets and sections."""


def wrap_line(line: list[Span], width: int) -> SpanLines:
    """``line`` wrapped to ``width``; the last span continues below its start.

    If that start is far to the right, it continues near the left edge: a very narrow column is unreadable.
    """
    if width <= 0 or sum(width_of(text) for text, _ in line) <= width:
        return [line]
    *before, (text, style) = line
    indent = sum(width_of(part) for part, _ in before)
    if indent <= width // 2:
        parts = _wrap_text(text, max(width - indent, 8)) or [""]
        return [[*before, (parts[0], style)], *([(" " * indent, "text"), (part, style)] for part in parts[1:])]
    near = 4
    gap = text[: len(text) - len(text.lstrip())]
    first, rest = "", text.split()
    while rest and width_of(first) + width_of(rest[0]) < width - indent - width_of(gap):
        first = f"{first} {rest.pop(0)}".lstrip()
    first = gap + first if first else ""
    parts = _wrap_text(" ".join(rest), max(width - near, 8))
    return [[*before, (first, style)], *([(" " * near, "text"), (part, style)] for part in parts)]


def _wrap_text(text: str, width: int) -> list[str]:
    """``text`` in lines of ``width``: words stay whole, also with a hyphen; longer ones break at separators."""
    lines = []
    for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False):
        rest = line
        while width_of(rest) > width:
            head = cut_to_width(rest, width + 1)[:-1]
            ends = (max((found.end() for found in signs.finditer(head)), default=0) for signs in _SEPARATORS)
            at = next((end for end in ends if end > len(head) // 3), len(head))
            lines.append(rest[:at])
            rest = rest[at:]
        lines.append(rest)
    return lines


def cut_line(line: list[Span], width: int) -> list[Span]:
    """``line`` cut to ``width`` in its last span."""
    *before, (text, style) = line
    return [*before, (cut_to_width(text, max(width - sum(width_of(part) for part, _ in before), 0)), style)]


_SEPARATORS = (re.compile(r"[/,;:=&|]"), re.compile(r"[_.-]"))
"""Behind which a word too long for a line breaks, the better ones first."""
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
