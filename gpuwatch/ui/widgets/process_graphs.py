"""Stacked graphs of one process on one time axis."""

from __future__ import annotations

import math
from functools import partial

from gpuwatch.core.formatting.units import UNKNOWN, gib, memory, percent, size
from gpuwatch.core.model.snapshot import Process
from gpuwatch.session.process_history import ProcessHistory, total
from gpuwatch.session.view import View
from gpuwatch.ui.widgets.graphs import GraphStack, graph
from gpuwatch.ui.widgets.paint import Line

_GIB = 1024**3
_GRAPHS = (
    ("gpu_memory_bytes", "GPU memory", "memory"),
    ("sm_percent", "SM", "graph"),
    ("cpu_percent", "CPU", "graph"),
    ("host_memory_bytes", "Host memory", "memory"),
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
        known = [value for value in totals if value is not None]
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


class ProcessGraphs(GraphStack):
    """Graphs of one process."""

    _shown: tuple[ProcessHistory, tuple[Process, ...], View] | None = None

    def show(self, history: ProcessHistory, rows: tuple[Process, ...], view: View) -> None:
        self._shown = (history, rows, view)
        self.redraw()

    def _draw(self, width: int, height: int) -> None:
        if self._shown is not None:
            self._stack(_GRAPHS, partial(_graph, *self._shown), self._shown[-1])


def _graph(
    history: ProcessHistory,
    rows: tuple[Process, ...],
    view: View,
    reading: str,
    caption: str,
    ink: str,
    width: int,
    height: int,
) -> list[Line]:
    end, words = axis_of(reading, history, rows, view)
    value = total(rows, reading)
    name = caption if width >= 44 else _SHORT.get(caption, caption)
    current = (UNKNOWN if value is None else _amount(reading, value), "dim" if value is None else "strong")
    axis = None if end is None else (0.0, end)
    return graph(view, history.times, history.series[reading], name, current, ink, axis, words, width, height)
