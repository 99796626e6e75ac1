"""Stacked graphs of one device, each on its metric's fixed axis and labelled with its time span."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from gpuwatch.core.formatting import durations, units
from gpuwatch.core.model.metrics import BY_ID
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Device
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.cells import width_of
from gpuwatch.ui.drawing.frame import frame
from gpuwatch.ui.drawing.pen import Pen
from gpuwatch.ui.drawing.trend import axis_of, axis_text, braille, recent
from gpuwatch.ui.tables.gpu_graphs import ALL
from gpuwatch.ui.tables.load_levels import Thresholds, bar_ink, mark, rank
from gpuwatch.ui.widgets.paint import Line, Painted, Span
from gpuwatch.ui.widgets.preferences_app import preferences_of

GRAPHS = tuple((graph.metric, graph.caption, graph.ink) for graph in ALL if graph.load)
"""Metric, caption and normal ink."""
_LOADS = {graph.metric: graph.load for graph in ALL}


class GraphStack(Painted):
    """Graphs one above the other, as many as fit with at least one row of dots each."""

    framed = True

    def _stack(
        self, graphs: Sequence[tuple[str, str, str]], draw: Callable[[str, str, str, int, int], list[Line]], view: View
    ) -> None:
        """Paints graphs; ``draw``: returns one from its entry in ``graphs``, its width and its rows of dots."""
        width, height = self.size
        inner, room = (width - 4, height - 2) if self.framed else (width - 2, height)
        count = min(len(graphs), max(room // 2, 1))
        lines: list[Line] = []
        for number, (name, caption, ink) in enumerate(graphs[:count]):
            rows = max((number + 1) * room // count - number * room // count - 1, 1)
            drawn = draw(name, caption, ink, inner, rows)
            lines += [Line(((" ", "text"), *line.spans)) for line in drawn]
        if self.framed:
            lines = frame(lines, width, height, title=[("History", "title")])
        self.paint(lines, stale=view.stale)


class Graphs(GraphStack):
    """Graphs of one device."""

    _shown: tuple[Device, View] | None = None

    def show(self, device: Device, view: View) -> None:
        self._shown = (device, view)
        self.redraw()

    def _draw(self, width: int, height: int) -> None:
        if self._shown is not None:
            device, view = self._shown
            self._stack(GRAPHS, partial(_graph, device, view, preferences_of(self).thresholds), view)


def _graph(
    device: Device, view: View, thresholds: Thresholds, metric: str, caption: str, ink: str, width: int, rows: int
) -> list[Line]:
    spec = BY_ID[metric]
    value = device.get(metric)
    level = rank(_LOADS[metric], device, thresholds)
    ink = bar_ink(ink, level)
    axis = axis_of(spec, device, view.history)
    text = f"{mark(_LOADS[metric], level)} {units.reading(spec, value)}".strip()
    current = (text, "dim" if isinstance(value, Missing) else bar_ink("strong", level))
    words = axis_text(spec, axis) if axis is not None else "limit unknown"
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
    if axis is None:
        return captioned(caption, current, words, [], (0.0, 1.0), ink, width, rows)
    span, series = recent(view, times, values, width, whole=True)
    return captioned(caption, current, f"{words}   {durations.span(span)}", series, axis, ink, width, rows)


def captioned(
    caption: str,
    current: Span,
    note: str,
    series: Sequence[float | None],
    axis: tuple[float, float],
    ink: str,
    width: int,
    rows: int,
) -> list[Line]:
    """A caption with the current value and at the right a note, then ``rows`` lines of dots."""
    pen = Pen(width).add(f"{caption} ", "dim").add(*current)
    if pen.left >= width_of(note) + 2:
        pen.to(width - width_of(note)).add(note, "dim")
    dots = braille(series, low=axis[0], high=axis[1], rows=rows) if series else [""] * rows
    return [pen.line(), *(Line(((row.ljust(width), ink),)) for row in dots)]
