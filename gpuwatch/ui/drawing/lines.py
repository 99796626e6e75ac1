"""A pane's lines as plain data: spans of text, each with the name of its ink. Pure, no Textual."""

from __future__ import annotations

from typing import NamedTuple

from gpuwatch.ui.drawing.cells import width_of

Span = tuple[str, str]
"""Text and the name of its ink, see :data:`gpuwatch.ui.drawing.inks.INKS`."""


class Line(NamedTuple):
    """One line of a pane; ``wash`` is an ink whose background covers the whole line."""

    spans: tuple[Span, ...]
    wash: str = ""


BLANK = Line(())


def difference(old: Line, new: Line) -> tuple[int, int] | None:
    """First and one-past-last differing cell of two lines; None when the full width must be redrawn."""
    if old.wash != new.wash:
        return None
    start = 0
    head = 0
    for (text, ink), other in zip(old.spans, new.spans, strict=False):
        if (text, ink) != other:
            break
        start += width_of(text)
        head += 1
    ends = [sum(width_of(text) for text, _ in line.spans) for line in (old, new)]
    if ends[0] != ends[1]:
        return (start, max(ends))
    end = ends[0]
    for ours, theirs in zip(reversed(old.spans[head:]), reversed(new.spans[head:]), strict=False):
        if ours != theirs:
            break
        end -= width_of(ours[0])
    return (start, max(end, start + 1))


def span_at(line: Line, x: int) -> int | None:
    """Number of the span that begins at cell ``x``; None if none does."""
    at = 0
    for number, (text, _) in enumerate(line.spans):
        if at == x:
            return number
        at += width_of(text)
    return None


Patch = tuple[int, str, str]
"""Cell, text and ink to write over a line."""


def patches(old: Line, new: Line, width: int) -> list[Patch]:
    """The patches that turn ``old`` into ``new`` on a screen ``width`` cells wide."""
    if old.wash == new.wash and len(old.spans) == len(new.spans):
        found = _in_place(old.spans, new.spans, width)
        if found is not None:
            return found
    found = []
    x = 0
    for text, ink in new.spans:
        if text:
            found.append((x, text, ink))
            x += width_of(text)
    if x > width:
        return [(0, "", "")]  # the line is cut mid-span: the caller has to draw it
    if x < width:
        found.append((x, " " * (width - x), ""))
    return found


def changed(before: str, now: str) -> tuple[int, int]:
    """First and one-past-last differing character of two different texts of equal length."""
    start, end = 0, len(now)
    while now[start] == before[start]:
        start += 1
    while now[end - 1] == before[end - 1]:
        end -= 1
    return start, end


def _in_place(old: tuple[Span, ...], new: tuple[Span, ...], width: int) -> list[Patch] | None:
    """The differing spans if every span keeps its place, else None."""
    found: list[Patch] = []
    x = 0
    for before, now in zip(old, new, strict=True):
        text, ink = now
        size = len(text) if text.isascii() else width_of(text)
        if before is not now and before != now and (text or before[0]):
            was, its_ink = before
            if width_of(was) != size:
                return None
            start, end = 0, len(text)
            if ink == its_ink and len(was) == size == end:
                start, end = changed(was, text)
            found.append((x + start, text[start:end], ink))
        x += size
    return found if x <= width else None
