"""Lines as plain data: spans of text, each with the name of its style; wrapped, cut, compared. Pure, no Textual."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import NamedTuple

from gpuwatch.ui.drawing.text_width import cut_to_width, width_of

Span = tuple[str, str]
"""Text and the name of its style, see :data:`gpuwatch.ui.drawing.text_styles.STYLES`."""


class Line(NamedTuple):
    """One line of a pane; ``highlighted``: whether it is under the cursor."""

    spans: tuple[Span, ...]
    highlighted: bool = False


BLANK = Line(())
SpanLines = list[list[Span]]
"""Lines as lists of spans, for sheets and sections."""


def spans_width(spans: Iterable[Span]) -> int:
    """Cells of all spans together."""
    return sum(width_of(text) for text, _ in spans)


def wrap_line(line: list[Span], width: int) -> SpanLines:
    """``line`` wrapped to ``width``; the last span continues below its start.

    If that start is far to the right, it continues near the left edge: a very narrow column is unreadable.
    """
    if width <= 0 or spans_width(line) <= width:
        return [line]
    *before, (text, style) = line
    indent = spans_width(before)
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


def wrap_lines(lines: Iterable[list[Span]], width: int) -> SpanLines:
    """Each of the lines wrapped, see :func:`wrap_line`."""
    return [part for line in lines for part in wrap_line(line, width)]


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
    return [*before, (cut_to_width(text, max(width - spans_width(before), 0)), style)]


_SEPARATORS = (re.compile(r"[/,;:=&|]"), re.compile(r"[_.-]"))
"""Behind which a word too long for a line breaks, the better ones first."""


def with_spans_replaced(line: Line, cells: dict[int, Span]) -> Line | None:
    """The line with other spans from the cells ``cells`` on; None if no span of this width begins at one of them."""
    at = found = 0
    spans = list(line.spans)
    for number, (text, _) in enumerate(line.spans):
        size = len(text) if text.isascii() else width_of(text)
        if at in cells:
            if width_of(cells[at][0]) != size:
                return None
            spans[number] = cells[at]
            found += 1
        at += size
    return Line(tuple(spans), line.highlighted) if found == len(cells) else None


Patch = tuple[int, str, str]
"""Cell, text and style to write over a line."""
_MAX_EQUAL_CELLS = 8
"""Equal cells between two that differ which cost no more than to move the cursor."""


def patches(old: Line, new: Line, width: int) -> list[Patch]:
    """The patches that turn ``old`` into ``new`` on a screen ``width`` cells wide."""
    if old.highlighted == new.highlighted:
        found = _patches_by_span(old.spans, new.spans, width) if len(old.spans) == len(new.spans) else None
        if found is None:
            found = _patches_by_cell(old.spans, new.spans, width)
        if found is not None:
            return found
    found = []
    x = 0
    for text, style in new.spans:
        if text:
            found.append((x, text, style))
            x += width_of(text)
    if x > width:
        return [(0, "", "")]  # the line is cut mid-span: the caller has to draw it
    if x < width:
        found.append((x, " " * (width - x), ""))
    return found


def differing_range(before: str, now: str) -> tuple[int, int]:
    """First and one-past-last differing character of two different texts of equal length."""
    start, end = 0, len(now)
    while now[start] == before[start]:
        start += 1
    while now[end - 1] == before[end - 1]:
        end -= 1
    return start, end


def _patches_by_cell(old: tuple[Span, ...], new: tuple[Span, ...], width: int) -> list[Patch] | None:
    """The differing cells, neighbors of one style together; None if a character is not one cell wide, or one is cut."""
    before, now = _cells(old, width), _cells(new, width)
    if before is None or now is None:
        return None
    found: list[Patch] = []
    x = 0
    while x < width:
        if before[x] == now[x]:
            x += 1
            continue
        start, style, end = x, now[x][1], x + 1
        while x < min(end + _MAX_EQUAL_CELLS, width) and now[x][1] == style:
            x += 1
            if before[x - 1] != now[x - 1]:
                end = x
        found.append((start, "".join(character for character, _ in now[start:end]), style))
        x = end
    return found


def _cells(spans: tuple[Span, ...], width: int) -> list[tuple[str, str]] | None:
    cells: list[tuple[str, str]] = []
    for text, style in spans:
        if not text.isascii() and any(width_of(word) != 1 for word in text):
            return None
        cells += [(character, style) for character in text]
    return cells + [(" ", "")] * (width - len(cells)) if len(cells) <= width else None


def _patches_by_span(old: tuple[Span, ...], new: tuple[Span, ...], width: int) -> list[Patch] | None:
    """The differing spans if every span keeps its place, else None."""
    found: list[Patch] = []
    x = 0
    for before, now in zip(old, new, strict=True):
        text, style = now
        size = len(text) if text.isascii() else width_of(text)
        if before is not now and before != now and (text or before[0]):
            was, its_style = before
            if width_of(was) != size:
                return None
            start, end = 0, len(text)
            if style == its_style and len(was) == size == end:
                start, end = differing_range(was, text)
            found.append((x + start, text[start:end], style))
        x += size
    return found if x <= width else None
