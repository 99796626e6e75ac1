"""Builds one line of spans and tracks its current cell; bars with a resolution of an eighth of a cell."""

from __future__ import annotations

from collections.abc import Iterable

from gpuwatch.ui.drawing.styled_lines import Line, Span
from gpuwatch.ui.drawing.text_width import cut_to_width, width_of

_EIGHTHS = " ▎▎▍▌▋▊▉"
"""One eighth is drawn as two: the glyph for one eighth is also the frame's, and color alone must not separate them."""
_LEVELS = "▁▂▃▄▅▆▇█"


def meter(fraction: float | None) -> str:
    """A vertical bar in one cell, for lines too short for a horizontal one; blank for unknown and for zero."""
    if not fraction:
        return " "
    return _LEVELS[min(max(round(fraction * 8) - 1, 0), 7 if fraction >= 0.995 else 6)]


def bar(fraction: float | None, width: int) -> tuple[str, str]:
    """The filled and the empty part of a bar of ``width`` cells; an unknown fraction gives an empty bar.

    Any fraction above zero fills at least an eighth, and only a full one fills the bar.
    """
    if fraction is None or width <= 0:
        return "", " " * width
    total = width * 8
    eighths = round(min(max(fraction, 0.0), 1.0) * total)
    if fraction > 0:
        eighths = max(eighths, 1)
    if fraction < 0.995:
        eighths = min(eighths, total - 1)
    full, rest = divmod(eighths, 8)
    filled = "█" * full + (_EIGHTHS[rest] if rest else "")
    return filled, " " * (width - len(filled))


class Pen:
    """Writes from left to right up to the cell ``limit``."""

    __slots__ = ("limit", "spans", "x")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.x = 0
        self.spans: list[Span] = []

    @property
    def left(self) -> int:
        return self.limit - self.x

    def add(self, text: str, ink: str = "text") -> Pen:
        """Writes ``text``, cut at the limit."""
        room = self.limit - self.x
        if text and room > 0:
            size = width_of(text)
            if size > room:
                text = cut_to_width(text, room)
                size = width_of(text)
            self.spans.append((text, ink))
            self.x += size
        return self

    def write(self, spans: Iterable[Span]) -> Pen:
        for text, ink in spans:
            self.add(text, ink)
        return self

    def to(self, x: int, fill: str = " ", ink: str = "text") -> Pen:
        """Fills up to column ``x``."""
        gap = min(x, self.limit) - self.x
        return self.add(fill * gap, ink) if gap > 0 else self

    def bar(self, fraction: float | None, width: int, ink: str) -> Pen:
        """A bar of ``width`` cells, and a frame cell on each side."""
        filled, empty = bar(fraction, width)
        self.add("▕", "track")
        self.add(filled, ink)
        self.add(empty, "text")
        return self.add("▏", "track")

    def line(self, highlighted: bool = False) -> Line:
        return Line(tuple(self.spans), highlighted)
