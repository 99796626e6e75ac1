"""The memory of a run or a profile over time: in words, in layers by group or by line, and in characters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.memory_profile import MemoryMoment
from gpuwatch.core.model.run import Run
from gpuwatch.core.safe_text import shorten
from gpuwatch.share.reports.memory_profile_tables import MEMORY_GROUPS
from gpuwatch.share.reports.recorded_period_graphs import block_graph
from gpuwatch.share.reports.report_elements import MemoryAreas
from gpuwatch.share.reports.report_text import clean

_AMOUNTS_IN_WORDS = 8
"""Amounts that describe a timeline in words."""
_OTHER_COLUMNS = 21
"""Columns after a graph in characters."""
_MAX_GRAPH_COLUMNS = 72
_MIN_SHARE = 0.005
"""Share of the peak that a layer has at some moment, or it is not drawn."""


def device_suffix(run: Run) -> str:
    """`` on GPU 0``: the device of a timeline, the one that the run filled most."""
    entry = next((entry for entry in run.memory.devices if entry.uuid == run.memory.device_uuid), None)
    return f" on GPU {entry.index}" if entry is not None else ""


def timeline_text(run: Run) -> str:
    """``in use by the framework: 1.0 GiB → 4.0 GiB → 7.0 GiB, sampled over 124 s``; empty if unknown."""
    points = [(point.t, amount) for point in run.memory.timeline if (amount := point.allocator_bytes) is not None]
    owner, peak = "in use by the framework", max((*run.memory.allocators.values(), 0))
    if not points:
        points = [(point.t, amount) for point in run.memory.timeline if (amount := point.process_bytes) is not None]
        owner, peak = "held (NVML)", run.memory.nvml_peak_bytes or 0
    if len(points) < 2:
        return ""
    span = points[-1][0] - points[0][0]
    last = len(points) - 1
    amounts = [points[round(step * last / (_AMOUNTS_IN_WORDS - 1))][1] for step in range(_AMOUNTS_IN_WORDS)]
    steps = f"{owner}: {' → '.join(text for text, _ in groupby(map(size, amounts)))}"
    total = run.phases.total_seconds
    of_total = f" of {total:.0f} s" if total is not None and total > span + 1 else ""
    peak_text = f", peak {size(peak)}" if peak > max(amounts) else ""
    return f"{steps}, sampled over {span:.0f} s{of_total}{peak_text}"


def memory_changed(run: Run) -> bool:
    """Whether the memory of this run changed: an empty chart says less than none."""
    points = run.memory.timeline
    if len(points) < 2:
        return False
    used = {point.device_used_bytes for point in points if point.device_used_bytes is not None}
    return len(used) > 1 or any(point.process_bytes or point.allocator_bytes for point in points)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer, from the bottom."""

    name: str
    kind: str
    """How it is drawn: a class of the style sheet."""
    bytes_at: Callable[[MemoryMoment], int]
    """Its bytes at a moment."""


def layers(chart: MemoryAreas) -> list[Layer]:
    """Those that can be seen, what lives long at the bottom; lines as they are in the profile."""
    profile = chart.profile
    peak_in_use = max((moment.in_use_bytes for moment in profile.moments), default=0)
    if chart.by == "line":
        candidates = [Layer("others", "workspace", lambda moment: max(moment.in_use_bytes - sum(moment.lines), 0))]
        named = reversed(list(enumerate(profile.lines)))
        candidates += [Layer(clean(name), f"c{index}", partial(_line_bytes, index)) for index, name in named]
    else:
        candidates = [Layer(name, kind, partial(_group_bytes, name)) for name, (kind, _) in MEMORY_GROUPS.items()]
    peaks = ((layer, max((layer.bytes_at(moment) for moment in profile.moments), default=0)) for layer in candidates)
    return [layer for layer, peak in peaks if peak > _MIN_SHARE * peak_in_use]


def _group_bytes(name: str, moment: MemoryMoment) -> int:
    return moment.groups.get(name, 0)


def _line_bytes(index: int, moment: MemoryMoment) -> int:
    return moment.lines[index] if index < len(moment.lines) else 0


def graph_lines(chart: MemoryAreas, width: int) -> Iterator[str]:
    """A line for each layer, the largest first, each of its own scale; nothing for a profile without moments."""
    moments = chart.profile.moments
    if len(moments) < 2:
        return
    rows: list[tuple[str, list[int]]] = [("in use", [moment.in_use_bytes for moment in moments])]
    layer_amounts = [(layer.name, [layer.bytes_at(moment) for moment in moments]) for layer in layers(chart)]
    rows += sorted(layer_amounts, key=lambda row: (row[0] == "others", -max(row[1])))
    name_width = min(max(len(name) for name, _ in rows), max((width - _OTHER_COLUMNS) // 2, _OTHER_COLUMNS))
    for name, amounts in rows:
        line = block_graph(
            [amount or None for amount in amounts],
            0.0,
            max(amounts),
            min(width - name_width - _OTHER_COLUMNS, _MAX_GRAPH_COLUMNS),
            summarize=max,
        )
        yield f"{shorten(name, name_width):<{name_width}}  {line}  {size(max(amounts))} at most"
