"""The memory of a run over time: in words, on which GPU, and whether it changed at all."""

from __future__ import annotations

from itertools import groupby

from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.run import Run

_AMOUNTS_IN_WORDS = 8
"""Amounts that describe a timeline in words."""


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
    shown_amounts = [
        points[round(step * (len(points) - 1) / (_AMOUNTS_IN_WORDS - 1))][1] for step in range(_AMOUNTS_IN_WORDS)
    ]
    steps = f"{owner}: {' → '.join(shown_amounts for shown_amounts, _ in groupby(map(size, shown_amounts)))}"
    total = run.phases.total_seconds
    of_total = f" of {total:.0f} s" if total is not None and total > span + 1 else ""
    peak_text = f", peak {size(peak)}" if peak > max(shown_amounts) else ""
    return f"{steps}, sampled over {span:.0f} s{of_total}{peak_text}"


def memory_changed(run: Run) -> bool:
    """Whether the memory of this run changed: an empty chart says less than none."""
    points = run.memory.timeline
    if len(points) < 2:
        return False
    used = {point.device_used_bytes for point in points if point.device_used_bytes is not None}
    return len(used) > 1 or any(point.process_bytes or point.allocator_bytes for point in points)
