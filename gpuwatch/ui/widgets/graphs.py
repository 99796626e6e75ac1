"""Stacked graphs of one device, each on its metric's fixed axis and labelled with its time span."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events

from gpuwatch.formatting import units
from gpuwatch.model.metrics import BY_ID, MetricSpec, Unit
from gpuwatch.model.reading import Missing
from gpuwatch.model.snapshot import Device
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.cells import width_of
from gpuwatch.ui.drawing.frame import frame
from gpuwatch.ui.drawing.pen import Pen
from gpuwatch.ui.drawing.trend import axis_of, braille, buckets, span_for
from gpuwatch.ui.tables.device_facts import HOT_CELSIUS
from gpuwatch.ui.widgets.paint import Line, Painted, Span

GRAPHS = (
    ("utilization.gpu_percent", "GPU", "graph"),
    ("memory.used_bytes", "Memory", "memory"),
    ("power.draw_watts", "Power", "power"),
    ("temperature.gpu_celsius", "Temperature", "accent"),
    ("clocks.sm_mhz", "SM clock", "accent"),
)
"""Metric, caption and normal ink."""


class Graphs(Painted):
    """Graphs of one device, as many as fit with at least one row of dots each."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: tuple[Device, View] | None = None
        self.framed = True

    def show(self, device: Device, view: View) -> None:
        """Draws the history of ``device``."""
        self._shown = (device, view)
        self._redraw()

    def on_resize(self, event: events.Resize) -> None:
        """Redraws for the new size."""
        self._redraw()

    def _redraw(self) -> None:
        width, height = self.size
        if self._shown is None or not width or not height:
            return
        device, view = self._shown
        inner, room = (width - 4, height - 2) if self.framed else (width - 2, height)
        count = min(len(GRAPHS), max(room // 2, 1))
        lines: list[Line] = []
        for number, (metric, caption, ink) in enumerate(GRAPHS[:count]):
            rows = max((number + 1) * room // count - number * room // count - 1, 1)
            lines += [_padded(line) for line in _graph(device, view, metric, caption, ink, inner, rows)]
        if self.framed:
            lines = frame(lines, width, height, title=[("History", "title")])
        self.paint(lines, stale=view.stale)


def _padded(line: Line) -> Line:
    return Line(((" ", "text"), *line.spans))


def _graph(device: Device, view: View, metric: str, caption: str, ink: str, width: int, rows: int) -> list[Line]:
    spec = BY_ID[metric]
    value = device.get(metric)
    if metric == "temperature.gpu_celsius" and isinstance(value, (int, float)) and value >= HOT_CELSIUS:
        ink = "warning"
    axis = axis_of(spec, device, view.history)
    current = (units.reading(spec, value), "dim" if isinstance(value, Missing) else "strong")
    words = _axis_text(spec, axis) if axis is not None else "limit unknown"
    times, series = view.history.times, view.history.series(device.uuid, metric)
    return graph(view, times, series, caption, current, ink, axis, words, width, rows)


def graph(
    view: View,
    times: Sequence[float],
    values: Sequence[float | None],
    caption: str,
    current: Span,
    ink: str,
    axis: tuple[float, float] | None,
    words: str,
    width: int,
    rows: int,
) -> list[Line]:
    """A caption with the current value and the axis, then ``rows`` lines of dots.

    ``words``: the axis, or why there is none.
    """
    pen = Pen(width)
    pen.add(f"{caption} ", "dim").add(*current)
    if axis is None:
        note = words
        series: list[float | None] = []
    else:
        span = span_for(width, view.interval)
        series = buckets(
            times,
            values,
            columns=width * 2,
            span=span,
            until=view.until if view.until is not None else view.now,
            interval=view.interval,
        )
        note = f"{words}   {span}s"
    if pen.left >= width_of(note) + 2:
        pen.to(width - width_of(note)).add(note, "dim")
    low, high = axis if axis is not None else (0.0, 1.0)
    dots = braille(series, low=low, high=high, rows=rows) if series else [""] * rows
    return [pen.line(), *(Line(((row.ljust(width), ink),)) for row in dots)]


def _axis_text(spec: MetricSpec, axis: tuple[float, float]) -> str:
    low, high = axis
    if spec.unit is Unit.BYTES:
        return f"0–{units.gib(high)} GiB"
    return f"{low:.0f}–{high:.0f} {spec.unit.value}"
