"""Below the probe table: events and memory of the running probe, or a description of the chosen one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwatch.core.formatting.units import UNKNOWN, gib_text
from gpuwatch.ui.details.probe_descriptions import event_text
from gpuwatch.ui.drawing.braille_graph import column_means
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Line
from gpuwatch.ui.drawing.wrapping import SpanLines
from gpuwatch.ui.widgets.graphs import Graph
from gpuwatch.ui.widgets.scroll_list import TextPane

if TYPE_CHECKING:
    from gpuwatch.session.background_probes import RunningBatch


_SPANS_SECONDS = (5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
_SAMPLE_SECONDS = 0.1


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
        events = [(at, *shown) for at, event in live.events if (shown := event_text(event))[0]][-room:]
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
    parts = (("process", live.process), (f"{live.device_name}, all owners", live.device))
    for number, (caption, values) in enumerate(parts):
        rows = max((number + 1) * height // 2 - number * height // 2, 2)
        now = values[-1] if values else None
        current = (UNKNOWN, "dim") if now is None else (f"{gib_text(now)} GiB", "strong")
        columns = column_means(
            live.times,
            values,
            columns=width * 2,
            span=span,
            until=max(until, span - 1e-9),
            interval=_SAMPLE_SECONDS * 2,
        )
        note = f"0–{gib_text(total)} GiB  {span:.0f}s"
        lines += Graph(caption, current, "memory", columns, (0.0, total), note).lines(width, rows)
    return lines[:height]
