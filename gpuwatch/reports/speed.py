"""Throughput in words, with its spread."""

from __future__ import annotations

from gpuwatch.formatting.units import UNKNOWN, per_second
from gpuwatch.model.run import Throughput

WIDE = 0.10
"""p10 to p90 of more than this share of the median: the number says little."""
SCATTER = "▲ the steps scattered by more than 10 %: this speed says little"


def speed(throughput: Throughput | None) -> str:
    """``412 ±2``: median steps per second, and half the distance from p10 to p90."""
    if throughput is None:
        return UNKNOWN
    spread = half_spread(throughput)
    shown = per_second(throughput.steps_per_second)
    if spread is None:
        return shown
    decimals = len(shown.partition(".")[2])
    return f"{shown} ±{spread:.{decimals}f}"


def step_time(value: float) -> str:
    """Three digits, because steps are compared with each other: ``1.08 ms``."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if value * factor >= 1:
            return f"{value * factor:#.3g} {unit}".replace(". ", " ")
    return f"{value * 1e6:#.3g} µs".replace(". ", " ")


def half_spread(throughput: Throughput) -> float | None:
    """Half of p10 to p90, in steps per second."""
    fast, slow = throughput.p10_step_seconds, throughput.p90_step_seconds
    if fast <= 0 or slow <= 0:
        return None
    return abs(1 / fast - 1 / slow) / 2


def wide(throughput: Throughput | None) -> bool:
    """Whether the steps scattered so much that their speed says little."""
    if throughput is None or throughput.median_step_seconds <= 0:
        return False
    return throughput.p90_step_seconds - throughput.p10_step_seconds > WIDE * throughput.median_step_seconds


def apart(one: Throughput, other: Throughput) -> bool:
    """Whether the ranges from p10 to p90 do not overlap: else one speed cannot be told from the other."""
    return one.p90_step_seconds < other.p10_step_seconds or other.p90_step_seconds < one.p10_step_seconds


def unproven(one: Throughput, other: Throughput, *, simulated: bool) -> str:
    """Why no ratio of two speeds of the same work may be told; empty where it may."""
    if simulated:
        return "simulated GPUs compute on this computer's CPU, so that no speeds are compared"
    if wide(one) or wide(other):
        return "no speeds are compared, as steps scattered by more than 10 %"
    return "" if apart(one, other) else "the speed is the same within its scatter"
