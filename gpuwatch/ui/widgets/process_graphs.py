"""Stacked graphs of one process on one time axis."""

from __future__ import annotations

import math

from textual import events

from gpuwatch.formatting.units import UNKNOWN, gib, memory, percent, size
from gpuwatch.model.snapshot import Process
from gpuwatch.session.process_history import ProcessHistory, total
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.frame import frame
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
    """The end of an axis: ``first``, doubled until ``most`` fits, so that noise never fills the graph."""
    return first * 2 ** max(math.ceil(math.log2(most / first)), 0) if most > 0 else first


def axis_of(reading: str, history: ProcessHistory, rows: tuple[Process, ...], view: View) -> tuple[float | None, str]:
    """The upper end of the axis and its label; None and the reason if there is none."""
    on = [row.device_uuid for row in rows if row.device_uuid is not None]
    if not on and reading in ("gpu_memory_bytes", "sm_percent"):
        return None, "it is on no GPU"
    if reading == "gpu_memory_bytes":
        totals = [_total(view, uuid) for uuid in on]
        known = [one for one in totals if one is not None]
        if not known or len(known) < len(totals):
            return None, "GPU memory size unknown"
        return sum(known), f"0–{gib(sum(known))} GiB"
    if reading == "sm_percent":
        gpus = max(len(rows), 1)
        return 100.0 * gpus, f"0–{100 * gpus} %" + (f" of {gpus} GPUs" if gpus > 1 else "")
    most = max((value for value in history.series[reading] if value is not None), default=0.0)
    if reading == "cpu_percent":
        end = step(most, 100.0)
        return end, f"0–{end:.0f} %"
    end = step(most, float(_GIB))
    return end, f"0–{end / _GIB:.0f} GiB"


def _amount(reading: str, value: float) -> str:
    if reading == "gpu_memory_bytes":
        return memory(value)
    return size(value) if "bytes" in reading else percent(value)


def _total(view: View, uuid: str) -> float | None:
    """Total memory of a device, in bytes; of a lost device the last known value."""
    device = view.snapshot.device(uuid) if view.snapshot is not None else None
    now = device.number("memory.total_bytes") if device is not None else None
    return view.history.known(uuid, "memory.total_bytes") if now is None else now


class ProcessGraphs(Painted):
    """As many graphs as fit, each with at least one row of dots."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: tuple[ProcessHistory, tuple[Process, ...], View] | None = None
        self.framed = True

    def show(self, history: ProcessHistory, rows: tuple[Process, ...], view: View) -> None:
        """Draws the history of a process whose rows are ``rows``."""
        self._shown = (history, rows, view)
        self._redraw()

    def on_resize(self, event: events.Resize) -> None:
        """Redraws for the new size."""
        self._redraw()

    def _redraw(self) -> None:
        width, height = self.size
        if self._shown is None or not width or not height:
            return
        history, rows, view = self._shown
        inner, room = (width - 4, height - 2) if self.framed else (width - 2, height)
        count = min(len(_GRAPHS), max(room // 2, 1))
        lines: list[Line] = []
        for number, (reading, caption, ink) in enumerate(_GRAPHS[:count]):
            tall = max((number + 1) * room // count - number * room // count - 1, 1)
            end, words = axis_of(reading, history, rows, view)
            value = total(rows, reading)
            name = caption if inner >= 44 else _SHORT.get(caption, caption)
            text = UNKNOWN if value is None else _amount(reading, value)
            drawn = graph(
                view,
                history.times,
                history.series[reading],
                name,
                (text, "dim" if value is None else "strong"),
                ink,
                None if end is None else (0.0, end),
                words,
                inner,
                tall,
            )
            lines += [Line(((" ", "text"), *line.spans)) for line in drawn]
        if self.framed:
            lines = frame(lines, width, height, title=[("History", "title")])
        self.paint(lines, stale=view.stale)
