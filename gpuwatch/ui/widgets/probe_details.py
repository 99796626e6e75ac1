"""Below the probe table: events and memory of the running probe, what the chosen one does, bars of all runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwatch.core.formatting.units import UNKNOWN, gib_number
from gpuwatch.core.model.comparison import Comparison
from gpuwatch.share.reports import bar_charts
from gpuwatch.share.reports.runs_side_by_side import run_labels
from gpuwatch.ui.details.probe_descriptions import event_span
from gpuwatch.ui.drawing.braille_graph import column_means
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Line, SpanLines
from gpuwatch.ui.drawing.text_width import align_left, align_right, cut_to_width, width_of
from gpuwatch.ui.widgets.graphs import Graph
from gpuwatch.ui.widgets.scroll_list import TextPane

if TYPE_CHECKING:
    from gpuwatch.session.background_probes import RunningBatch

_SPANS_SECONDS = (5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
_INTERVAL_SECONDS = 0.2
"""Twice that of the samples."""


class ProbeDetails(TextPane):
    """Lines beside a graph."""

    headed = True

    def show_text(self, title: str, lines: SpanLines) -> None:
        self.title = [(title, "title")]
        self.note = ""
        self.set_text(lines)

    def show_live(self, live: RunningBatch) -> None:
        self.title = [(live.config or "starting", "title"), (" live", "dim")]
        self.note = " stopping… " if live.stopping else " Esc stops "
        graph = max(min(self.inner_width // 2 - 2, 70), 0) if self.inner_width >= 60 else 0
        width, room = self.inner_width - graph - 2, self.room
        events = [(at, *shown) for at, event in live.events if (shown := event_span(event))[0]][-room:]
        drawn = _graph(live, graph, room) if graph else []
        lines = []
        for row in range(room):
            builder = LineBuilder(width)
            if row < len(events):
                at, text, style = events[row]
                builder.add(f" {at:5.1f} s  ", "faint").add(text, style)
            elif row == 0:
                builder.add(f" {live.step}", "dim")
            spans = builder.fill_to(width).spans
            lines.append(Line((*spans, ("  ", "text"), *drawn[row].spans) if row < len(drawn) else tuple(spans)))
        self.top = 0
        self.set_lines(lines)


def _graph(live: RunningBatch, width: int, height: int) -> list[Line]:
    """Graphs of process and device memory, each from zero to the device's total."""
    total = live.device_total
    if total is None or not live.times or height < 2:
        return [Line((("no GPU memory data", "dim"),))] if live.times else []
    until = live.times[-1]
    span = next((span for span in _SPANS_SECONDS if until <= span), _SPANS_SECONDS[-1])
    lines: list[Line] = []
    parts = (("process", live.process_bytes), (f"{live.device_name}, all owners", live.device_bytes))
    for number, (caption, values) in enumerate(parts):
        rows = max((number + 1) * height // 2 - number * height // 2, 2)
        now = values[-1] if values else None
        current = (UNKNOWN, "dim") if now is None else (f"{gib_number(now)} GiB", "strong")
        end = max(until, span - 1e-9)
        columns = column_means(live.times, values, columns=width * 2, span=span, until=end, interval=_INTERVAL_SECONDS)
        note = f"0–{gib_number(total)} GiB  {span:.0f}s"
        lines += Graph(caption, current, "memory", columns, (0.0, total), note).lines(width, rows)
    return lines[:height]


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
    named = list(zip(run_labels(document.runs), document.runs, strict=True))
    if chosen is not None and chosen >= _MAX_CHARTED_RUNS:  # a chart has no more rows than that
        start = len(named) - _MAX_CHARTED_RUNS if len(named) - chosen < _MAX_CHARTED_RUNS else chosen
        named, chosen = named[start:], chosen - start
    memory = bar_charts.held_memory_chart(named)
    if memory is None or room < 3 or width < _MIN_CELLS_FOR_BARS:
        return []
    simulated = any(run.simulated for run in document.runs)
    alike = {run_labels(document.runs)[index] for index in document.comparable}
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
