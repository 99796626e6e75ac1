"""Builds one line of spans and tracks its current cell; bars with a resolution of an eighth of a cell."""

from __future__ import annotations

from collections.abc import Iterable

from gpuwatch.ui.drawing.styled_lines import Line, Span
from gpuwatch.ui.drawing.text_width import cut_to_width, width_of

_EIGHTHS = " ▎▎▍▌▋▊▉"
"""One eighth is drawn as two: the glyph for one eighth is also the frame's, and color alone must not separate them."""
_LEVELS = "▁▂▃▄▅▆▇█"


def vertical_bar(fraction: float | None) -> str:
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


class LineBuilder:
    """Writes from left to right up to ``width`` cells."""

    __slots__ = ("spans", "width", "x")

    def __init__(self, width: int) -> None:
        self.width = width
        self.x = 0
        self.spans: list[Span] = []

    @property
    def cells_left(self) -> int:
        return self.width - self.x

    def add(self, text: str, style: str = "text") -> LineBuilder:
        """Writes ``text``, cut at the limit."""
        room = self.width - self.x
        if text and room > 0:
            size = width_of(text)
            if size > room:
                text = cut_to_width(text, room)
                size = width_of(text)
            self.spans.append((text, style))
            self.x += size
        return self

    def add_spans(self, spans: Iterable[Span]) -> LineBuilder:
        for text, style in spans:
            self.add(text, style)
        return self

    def fill_to(self, x: int, fill: str = " ", style: str = "text") -> LineBuilder:
        """Fills up to column ``x``."""
        gap = min(x, self.width) - self.x
        return self.add(fill * gap, style) if gap > 0 else self

    def bar(self, fraction: float | None, width: int, style: str) -> LineBuilder:
        """A bar of ``width`` cells, and a frame cell on each side."""
        filled, empty = bar(fraction, width)
        self.add("▕", "track")
        self.add(filled, style)
        self.add(empty, "text")
        return self.add("▏", "track")

    def line(self, highlighted: bool = False) -> Line:
        return Line(tuple(self.spans), highlighted)
