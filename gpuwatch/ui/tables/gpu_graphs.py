"""Graphs of a GPU in its card. Pure.

To add a graph, add an entry to :data:`ALL`, of a metric that has an axis and is in ``model.period.GRAPHED``;
cards, the chooser and the settings file follow.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuGraph:
    """One graph: metric, caption, ink."""

    id: str
    metric: str
    caption: str
    ink: str
    help: str


ALL: tuple[GpuGraph, ...] = (
    GpuGraph("utilization", "utilization.gpu_percent", "GPU", "graph", "share of time in which the GPU was busy"),
    GpuGraph("memory", "memory.used_bytes", "MEM", "memory", "GPU memory used"),
    GpuGraph("power", "power.draw_watts", "PWR", "power", "power draw up to the limit"),
    GpuGraph("temperature", "temperature.gpu_celsius", "TEMP", "temperature", "GPU temperature"),
    GpuGraph("clock", "clocks.sm_mhz", "SM", "clock", "SM clock up to its maximum"),
    GpuGraph(
        "bandwidth",
        "utilization.memory_percent",
        "MEM BUSY",
        "memory",
        "share of time in which memory was read or written",
    ),
)
GRAPHS = {graph.id: graph for graph in ALL}
DEFAULT_GRAPHS = tuple(GRAPHS)
