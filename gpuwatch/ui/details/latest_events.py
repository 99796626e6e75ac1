"""The latest events below a table that leaves lines empty, and how an event's severity is marked. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.ui.drawing.clock_text import clock_text
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Line
from gpuwatch.ui.drawing.text_width import cut_to_width

_MIN_EMPTY_LINES = 4
"""Empty lines of a table from which on it has events in them: two, below a heading and a line apart."""
EVENT_MARKS = {"error": ("✖", "error"), "warning": ("▲", "warning"), "info": ("·", "dim"), "good": ("●", "ok")}
"""Glyph and style of an event's severity."""


def with_latest_events(
    lines: list[Line], happened: Sequence[MachineEvent], now: float, width: int, room: int
) -> list[Line]:
    """A table with the machine's latest events at its bottom, newest first, if there are lines for some."""
    spare = room - len(lines)
    if not happened or spare < _MIN_EMPTY_LINES:
        return lines
    below = [LineBuilder(width).add("  LATEST EVENTS", "header").fill_to(width, style="header").line()]
    for event in islice(reversed(happened), spare - 2):
        glyph, style = EVENT_MARKS[event.severity]
        builder = LineBuilder(width).add(f"  {clock_text(event.at, now)}  ", "dim").add(f"{glyph} ", style)
        below.append(builder.add(cut_to_width(event.text, builder.cells_left), "text").line())
    return [*lines, *[Line(())] * (spare - len(below)), *below]
