"""Bars below the probe table: the memory and the speed of each run. Pure."""

from __future__ import annotations

from gpuwatch.core.model.run_comparison import Comparison
from gpuwatch.share.reports import bar_charts
from gpuwatch.share.reports.runs_side_by_side import labels
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Line
from gpuwatch.ui.drawing.text_width import align_left, align_right, cut_to_width, width_of

_MEMORY_CELLS = 9
"""Cells of an amount of memory."""
_SPEED_CELLS = 12
_MIN_BAR_CELLS = 12
"""Minimum cells of a bar."""
_MAX_CHARTED_RUNS = 30
_MAX_BAR_CELLS = 80
"""Maximum cells of a bar: the number should stand near its name."""
_MIN_CELLS_FOR_BARS = 60


def probe_bar_lines(document: Comparison, width: int, room: int, chosen: int | None = None) -> list[Line]:
    """A heading with the axes, and a line for each run that held GPU memory; empty for fewer than two runs.

    ``chosen``: index of a run to keep in view. Speeds of simulated GPUs are this computer's and are left out.
    """
    named = list(zip(labels(document.runs), document.runs, strict=True))
    if chosen is not None and chosen >= _MAX_CHARTED_RUNS:  # a chart has no more rows than that
        start = len(named) - _MAX_CHARTED_RUNS if len(named) - chosen < _MAX_CHARTED_RUNS else chosen
        named, chosen = named[start:], chosen - start
    memory = bar_charts.held_memory_chart(named)
    if memory is None or room < 3 or width < _MIN_CELLS_FOR_BARS:
        return []
    simulated = any(run.simulated for run in document.runs)
    alike = {labels(document.runs)[index] for index in document.comparable}
    speeds = None if simulated else bar_charts.speed_chart([pair for pair in named if pair[0] in alike])
    speed_of = {row.label: row for row in speeds.rows} if speeds is not None else {}
    name = max(width_of(row.label) for row in memory.rows) + 2
    parts = 2 if speed_of else 1
    bar = min((width - name - _MEMORY_CELLS - 4 - (_SPEED_CELLS + 5 if speed_of else 0)) // parts, _MAX_BAR_CELLS)
    if bar < _MIN_BAR_CELLS:
        return []
    behind = name + bar + _MEMORY_CELLS + 6
    rows, first = list(memory.rows), 0
    if len(rows) > room - 1:
        wanted = next((n for n, row in enumerate(rows) if chosen is not None and row.label == named[chosen][0]), 0)
        first = min(max(wanted - (room - 1) // 2, 0), len(rows) - room + 1)
    shown = min(len(rows), room - 1)
    of = f" · {shown} of {len(rows)} runs" if shown < len(rows) else ""
    title = f"Seen by NVML, {memory.axis}{of}"
    head = LineBuilder(width).fill_to(name, style="header")
    head.add(cut_to_width(title, behind - name - 2) if speeds is not None else title, "header")
    if speeds is not None:
        head.fill_to(behind, style="header").add("steps/s, from 0", "header")
    lines = [head.fill_to(width, style="header").line()]
    for row in rows[first : first + shown]:
        builder = LineBuilder(width)
        mine = chosen is not None and row.label == named[chosen][0]
        builder.add(align_left(f" {row.label}", name), "strong" if mine else "text")
        builder.bar(row.parts[0].amount / memory.top, bar, "memory")
        builder.add(align_right(row.parts[0].text, _MEMORY_CELLS), "text")
        speed = speed_of.get(row.label)
        if speeds is not None and speed is not None:
            builder.fill_to(behind).bar(speed.parts[0].amount / speeds.top, bar, "graph")
            builder.add(align_right(speed.text, _SPEED_CELLS), "text")
        elif speeds is not None:
            builder.fill_to(behind).add("not comparable", "dim")
        lines.append(builder.line())
    return lines
