"""Graphs of one process below each other, on one time axis."""

from __future__ import annotations

import math

from textual import events

from gpuwatch.formatting.units import UNKNOWN, gib, percent, size
from gpuwatch.model.snapshot import Process
from gpuwatch.ui.trail import Trail, total
from gpuwatch.ui.view import View
from gpuwatch.ui.widgets.frame import frame
from gpuwatch.ui.widgets.graphs import graph
from gpuwatch.ui.widgets.paint import Line, Painted

_GIB = 1024**3
_GRAPHS = (
    ("gpu_memory_bytes", "GPU memory", "memory"),
    ("sm_percent", "SM", "graph"),
    ("cpu_percent", "CPU", "accent"),
    ("host_memory_bytes", "Host memory", "power"),
)

_SHORT = {"GPU memory": "MEM", "Host memory": "HOST"}


def step(most: float, first: float) -> float:
    """The end of an axis: ``first``, or as often doubled as the highest value needs. Noise never fills it."""
    return first * 2 ** max(math.ceil(math.log2(most / first)), 0) if most > 0 else first


def axis_of(reading: str, trail: Trail, rows: tuple[Process, ...], view: View) -> tuple[float, str] | None:
    """The upper end and what is said of it; None where it is not known."""
    if reading == "gpu_memory_bytes":
        whole = 0.0
        for row in rows:
            device = view.snapshot.device(row.device_uuid) if view.snapshot is not None else None
            here = device.number("memory.total_bytes") if device is not None else None
            if here is None:
                return None
            whole += here
        return (whole, f"0–{gib(whole)} GiB") if whole else None
    if reading == "sm_percent":
        gpus = max(len(rows), 1)
        return 100.0 * gpus, f"0–{100 * gpus} %" + (f" of {gpus} GPUs" if gpus > 1 else "")
    most = max((value for value in trail.series[reading] if value is not None), default=0.0)
    if reading == "cpu_percent":
        end = step(most, 100.0)
        return end, f"0–{end:.0f} %"
    end = step(most, float(_GIB))
    return end, f"0–{end / _GIB:.0f} GiB"


class ProcessGraphs(Painted):
    """As many graphs as fit, each with at least one row of dots."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: tuple[Trail, tuple[Process, ...], View] | None = None
        self.framed = True

    def show(self, trail: Trail, rows: tuple[Process, ...], view: View) -> None:
        """Draws the trail of a process whose rows are ``rows``."""
        self._shown = (trail, rows, view)
        self._redraw()

    def on_resize(self, event: events.Resize) -> None:
        """More room, taller graphs."""
        self._redraw()

    def _redraw(self) -> None:
        width, height = self.size
        if self._shown is None or not width or not height:
            return
        trail, rows, view = self._shown
        inner, room = (width - 4, height - 2) if self.framed else (width - 2, height)
        count = min(len(_GRAPHS), max(room // 2, 1))
        lines: list[Line] = []
        for number, (reading, caption, ink) in enumerate(_GRAPHS[:count]):
            tall = max((number + 1) * room // count - number * room // count - 1, 1)
            end = axis_of(reading, trail, rows, view)
            value = total(rows, reading)
            name = caption if inner >= 44 else _SHORT.get(caption, caption)
            text = UNKNOWN if value is None else size(value) if "bytes" in reading else percent(value)
            drawn = graph(
                view,
                trail.times,
                trail.series[reading],
                name,
                (text, "dim" if value is None else "strong"),
                ink,
                None if end is None else (0.0, end[0]),
                "" if end is None else end[1],
                inner,
                tall,
            )
            lines += [Line(((" ", "text"), *line.spans)) for line in drawn]
        if self.framed:
            lines = frame(lines, width, height, title=[("History", "title")])
        self.paint(lines, stale=view.stale)
