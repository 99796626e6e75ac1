"""A pane's lines as plain data: spans of text, each with the name of its style. Pure, no Textual."""

from __future__ import annotations

from typing import NamedTuple

from gpuwatch.ui.drawing.text_width import width_of

Span = tuple[str, str]
"""Text and the name of its style, see :data:`gpuwatch.ui.drawing.text_styles.STYLES`."""


class Line(NamedTuple):
    """One line of a pane; ``highlighted``: whether it is under the cursor."""

    spans: tuple[Span, ...]
    highlighted: bool = False


BLANK = Line(())


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
