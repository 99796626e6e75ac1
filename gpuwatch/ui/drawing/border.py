"""A border around lines: title at the left, note at the right, scroll bar in the right edge."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import BLANK, Line, Span, spans_width
from gpuwatch.ui.drawing.text_width import width_of


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


def visible_rows(top: int, room: int, count: int) -> str:
    """The visible rows, ``1–10 of 200``; empty when all are visible."""
    return f"{top + 1}–{min(top + room, count)} of {count}" if count > room else ""
