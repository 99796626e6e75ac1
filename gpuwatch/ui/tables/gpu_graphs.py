"""Graphs of a GPU, in its card and on its tab. Pure.

To add a graph, add an entry to :data:`ALL`, of a metric that has an axis and is in ``model.period.GRAPHED``;
cards, the chooser and the settings file follow.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.ui.tables.load_levels import Load


@dataclass(frozen=True, slots=True)
class GpuGraph:
    """One graph: metric, caption on the tab, ink."""

    id: str
    metric: str
    caption: str
    ink: str
    help: str
    load: Load = ""
    """What its latest value is ranked as; empty: the tab of the GPU does not have this graph."""


# fmt: off
ALL: tuple[GpuGraph, ...] = (
    GpuGraph("utilization", "utilization.gpu_percent", "GPU", "graph", "share of time in which the GPU was busy",
        "utilization"),
    GpuGraph("memory", "memory.used_bytes", "Memory", "memory", "GPU memory used", "memory"),
    GpuGraph("power", "power.draw_watts", "Power", "power", "power draw up to the limit", "power"),
    GpuGraph("temperature", "temperature.gpu_celsius", "Temperature", "temperature", "GPU temperature", "temperature"),
    GpuGraph("clock", "clocks.sm_mhz", "SM clock", "clock", "SM clock up to its maximum", "clock"),
    GpuGraph("bandwidth", "utilization.memory_percent", "Memory busy", "memory",
        "share of time in which memory was read or written"),
)
# fmt: on
GRAPHS = {graph.id: graph for graph in ALL}
DEFAULT_GRAPHS = tuple(GRAPHS)
