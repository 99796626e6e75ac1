"""Stacked graphs of one device or process, each on a fixed axis and labeled with its time span."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from gpuwatch.core.formatting import durations
from gpuwatch.core.formatting.metric_value_text import metric_value_text
from gpuwatch.core.formatting.units import UNKNOWN, gib_number, memory, percent, size
from gpuwatch.core.model.metrics import BY_ID
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Device, Process
from gpuwatch.session.process_history import ProcessHistory, total_reading
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.braille_graph import axis_ends, axis_text, braille, recent_columns
from gpuwatch.ui.drawing.line_builder import LineBuilder, with_border
from gpuwatch.ui.drawing.styled_lines import Line, Span
from gpuwatch.ui.drawing.text_width import width_of
from gpuwatch.ui.tables.gpu_fields import GRAPHS
from gpuwatch.ui.tables.gpu_loads import Thresholds, bar_style, level_mark, load_level
from gpuwatch.ui.widgets.painted_pane import PaintedPane

_GIB = 1024**3
_NARROW_CELLS = 44
"""Cells below which a graph has its short caption."""
_BESIDE_CELLS = 21
"""Cells of a caption and an axis beside the dots."""
_PROCESS_GRAPHS = (
    ("gpu_memory_bytes", "GPU memory", "MEM", "memory"),
    ("sm_percent", "SM", "", "graph"),
    ("cpu_percent", "CPU", "", "graph"),
    ("host_memory_bytes", "Host memory", "HOST", "memory"),
)
"""Reading, caption, short caption and style."""
_TIME_SPAN_LABEL = "   last "
"""Before the time that a graph spans, where there is room."""


class Graph(NamedTuple):
    """A caption with the current value, and what is drawn below it."""

    caption: str
    current: Span
    style: str
    values: Sequence[float | None]
    axis: tuple[float, float] | None
    note: str
    """At the right of the caption: the axis, or why there is none."""
    short: str = ""
    """The caption where there is little room; empty: the same."""
    form: Callable[[float], str] = percent
    """A value as text."""
    most: float | None = None
    """The largest value of the time shown."""

    def lines(self, width: int, height: int, *, beside: bool = False) -> list[Line]:
        """``height`` lines: the caption, then dots, two for each cell: :attr:`values` as they are.

        ``beside``: the caption and the axis are at the left of the dots, which have all lines.
        """
        rows = height if beside else height - 1
        dots = ("",) * rows
        if self.axis is not None:
            dots = braille(tuple(self.values), low=self.axis[0], high=self.axis[1], rows=rows)
        caption = self.short if self.short and (beside or width < _NARROW_CELLS) else self.caption
        builder = LineBuilder(_BESIDE_CELLS if beside else width).add(f"{caption} ", "dim").add(*self.current)
        if beside:
            axis, _, last = self.note.partition(_TIME_SPAN_LABEL)
            whole = f"{axis} · {last}"
            under = LineBuilder(_BESIDE_CELLS).add(whole if last and width_of(whole) < _BESIDE_CELLS else axis, "dim")
            left = [builder, under, *(LineBuilder(_BESIDE_CELLS) for _ in range(rows - 2))]
            padded = [(row.ljust(width - _BESIDE_CELLS), self.style) for row in dots]
            first = (builder.fill_to(_BESIDE_CELLS).spans for builder in left)
            return [Line((*spans, row)) for spans, row in zip(first, padded, strict=True)]
        note = self.note
        if builder.cells_left < width_of(note) + 2:
            note = note.replace(_TIME_SPAN_LABEL, "   ")
        most = f"  max {self.form(self.most)}" if self.most is not None else ""
        if builder.cells_left >= width_of(most) + width_of(note) + 2:
            builder.add(most, "dim")
        if builder.cells_left >= width_of(note) + 2:
            builder.fill_to(width - width_of(note)).add(note, "dim")
        return [builder.line(), *(Line(((row.ljust(width), self.style),)) for row in dots)]

    def recent(self, view: View, times: Sequence[float], width: int) -> Graph:
        """The same with the values up to the moment shown, averaged for ``width`` cells, and their time span."""
        if self.axis is None:
            return self
        span, series = recent_columns(view, times, self.values, width, whole=True)
        shown = zip(reversed(times), reversed(self.values), strict=False)  # both end now
        seen = [value for at, value in shown if view.moment - span <= at <= view.moment and value is not None]
        most = max(seen, default=None)  # of the samples: a column of dots is the mean of some
        note = f"{self.note}{_TIME_SPAN_LABEL}{durations.rounded_duration(span)}"
        return self._replace(values=series, most=most, note=note)


class Graphs(PaintedPane):
    """Graphs one above the other, as many as fit with at least two rows of dots each."""

    framed = True
    _shown: tuple[Callable[[], Sequence[Graph]], Sequence[float], View] | None = None

    def show(self, graphs: Callable[[], Sequence[Graph]], times: Sequence[float], view: View) -> None:
        """Shows graphs, which are made when they are drawn; ``times``: of their values."""
        self._shown = graphs, times, view
        self.redraw()

    def _draw(self, width: int, height: int) -> None:
        if self._shown is None:
            return
        make, times, view = self._shown
        graphs = make()
        inner, room = (width - 4, height - 2) if self.framed else (width - 2, height)
        count = min(len(graphs), max(room // 2, 1))
        beside = room < 3 * count  # one row of dots below a caption shows no course
        lines: list[Line] = []
        for number, graph in enumerate(graphs[:count]):
            rows = max(room // count + (number < room % count), 2)
            dots = inner - _BESIDE_CELLS if beside else inner
            drawn = graph.recent(view, times, dots).lines(inner, rows, beside=beside)
            lines += [Line(((" ", "text"), *line.spans)) for line in drawn]
        if self.framed:
            lines = with_border(lines, width, height, title=[("History", "title")])
        self.paint(lines, stale=view.stale)


def device_graphs(device: Device, view: View, thresholds: Thresholds) -> list[Graph]:
    """Every graph of a device, each on its metric's axis."""
    found = []
    for field in GRAPHS.values():
        if field.load:
            spec, value = BY_ID[field.metric], device.get(field.metric)
            level = load_level(field.load, device, thresholds)
            text = f"{level_mark(field.load, level)} {metric_value_text(spec, value)}".strip()
            current = (text, "dim" if isinstance(value, Missing) else bar_style("strong", level))
            values, axis = view.history.series(device.uuid, field.metric), axis_ends(spec, device, view.history)
            note = axis_text(spec, axis) if axis is not None else "limit unknown"
            style, form = bar_style(field.graph.style, level), partial(metric_value_text, spec)
            found.append(Graph(field.graph.caption, current, style, values, axis, note, form=form))
    return found


def process_graphs(history: ProcessHistory, rows: tuple[Process, ...], view: View) -> list[Graph]:
    """Every graph of a process, on one time axis."""
    found = []
    for reading, caption, short, style in _PROCESS_GRAPHS:
        end, note = process_axis(reading, history, rows, view)
        value = total_reading(rows, reading)
        current = (UNKNOWN, "dim") if value is None else (_amount_text(reading, value), "strong")
        axis = None if end is None else (0.0, end)
        values, form = history.series[reading], partial(_amount_text, reading)
        found.append(Graph(caption, current, style, values, axis, note, short, form))
    return found


def axis_end(most: float, first: float) -> float:
    """The end of an axis: ``first``, doubled until ``most`` fits, so that noise never fills the graph."""
    return first * 2 ** max(math.ceil(math.log2(most / first)), 0) if most > 0 else first


def process_axis(
    reading: str, history: ProcessHistory, rows: tuple[Process, ...], view: View
) -> tuple[float | None, str]:
    """The upper end of the axis and its label; None and the reason if there is none."""
    on = [row.device_uuid for row in rows if row.device_uuid is not None]
    if not on and reading in ("gpu_memory_bytes", "sm_percent"):
        return None, "it uses no GPU" if view.devices else "unknown: no GPU can be read"
    if reading == "gpu_memory_bytes":
        totals = [_total_memory(view, uuid) for uuid in on]
        known = [value for value in totals if value is not None]
        if not known or len(known) < len(totals):
            return None, "GPU memory size unknown"
        return sum(known), f"0–{gib_number(sum(known))} GiB"
    if reading == "sm_percent":
        gpus = max(len(rows), 1)
        return 100.0 * gpus, f"0–{100 * gpus} %" + (f" of {gpus} GPUs" if gpus > 1 else "")
    most = max((value for value in history.series[reading] if value is not None), default=0.0)
    if reading == "cpu_percent":
        end = axis_end(most, 100.0)
        return end, f"0–{end:.0f} %"
    end = axis_end(most, float(_GIB))
    return end, f"0–{end / _GIB:.0f} GiB"


def _amount_text(reading: str, value: float) -> str:
    if reading == "gpu_memory_bytes":
        return memory(value)
    return size(value) if "bytes" in reading else percent(value)


def _total_memory(view: View, uuid: str) -> float | None:
    """Total memory of a device, in bytes; of a lost device the last known value."""
    device = view.device(uuid)
    now = device.number("memory.total_bytes") if device is not None else None
    return view.history.last_number(uuid, "memory.total_bytes") if now is None else now
