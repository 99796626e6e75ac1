"""Builds lines out of spans: one from left to right, with bars of eighths of a cell; and a border around several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuwatch.ui.drawing.styled_lines import BLANK, Line, Span, spans_width
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


def scroll_thumb(top: int, room: int, count: int) -> range:
    """Rows of the scroll bar's thumb; empty when the whole list is visible."""
    if count <= room:
        return range(0)
    size = max(room * room // count, 1)
    start = round(top * (room - size) / max(count - room, 1))
    return range(start, start + size)


def with_border(
    lines: Sequence[Line],
    width: int,
    height: int,
    *,
    title: Sequence[Span],
    note: str = "",
    focused: bool = False,
    scroll_bar: range = range(0),
    scroll_bar_top: int = 0,
) -> list[Line]:
    """Exactly ``height`` lines; the rows of ``scroll_bar`` count from line ``scroll_bar_top`` inside the frame."""
    edge = "focused-border" if focused else "border"
    builder = LineBuilder(width)
    builder.add("╭─ ", edge)
    for text, style in title:
        builder.add(text, edge if style == "border" else style)
    builder.add(" ", edge)
    if builder.cells_left < width_of(note) + 3:
        note = ""
    builder.fill_to(width - 2 - width_of(note), "─", edge).add(note, "dim")
    builder.fill_to(width - 1, "─", edge).add("╮", edge)
    framed = [builder.line()]
    for y in range(height - 2):
        line = lines[y] if y < len(lines) else BLANK
        used = spans_width(line.spans)
        rest = " " * max(width - 2 - used, 0)
        end = ("┃", "thumb") if y - scroll_bar_top in scroll_bar else ("│", edge)
        framed.append(Line((("│", edge), *line.spans, (rest, "text"), end), line.highlighted))
    framed.append(LineBuilder(width).add("╰", edge).fill_to(width - 1, "─", edge).add("╯", edge).line())
    return framed


def filtered_title(title: str, typed: str | None, note: str = "") -> list[Span]:
    """The title of a list, with a ``note`` and its filter as typed; None: it has none."""
    filtered: list[Span] = [] if typed is None else [(" ─ ", "border"), ("/ ", "key"), (typed, "strong")]
    return [(title, "title"), (note, "dim"), *filtered]


def visible_rows(top: int, room: int, count: int) -> str:
    """The visible rows, ``1–10 of 200``; empty when all are visible."""
    return f"{top + 1}–{min(top + room, count)} of {count}" if count > room else ""
