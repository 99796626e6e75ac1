"""Whether two speeds differ, and by how much, in words: what ``try``, ``diff`` and reports call faster."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.core.model.run import Throughput
from gpuwatch.core.model.try_results import StepTime, Trial
from gpuwatch.experiment.trials.step_times import is_unreliable, relative_half_width

MIN_DIFFERENCE_SHARE = 0.02
"""Speeds that differ by less are the same: no measurement is steadier."""
_MAX_HALF_WIDTH_SHARE = 0.10
"""Beyond this half-width of the interval, as a share of the time of a step, speeds that overlap are not the same."""


def why_not_comparable(throughput: Throughput, other: Throughput, *, simulated: bool) -> str:
    """Why two speeds of the same work cannot be compared; empty if they can."""
    if simulated:
        return "speeds not compared, as simulated GPUs compute on this computer's CPU"
    if is_unreliable(throughput) or is_unreliable(other):
        return "speeds not compared, as step times vary by more than 10 %"
    distinct = (
        throughput.p90_step_seconds < other.p10_step_seconds or other.p90_step_seconds < throughput.p10_step_seconds
    )
    return "" if distinct else "same speed within noise"


def is_clearly_different(step: StepTime, other: StepTime) -> bool:
    """Whether the intervals show that one is faster, by more than 2 %."""
    faster, slower = sorted((step, other), key=lambda time: time.median_seconds)
    return faster.high_seconds < slower.low_seconds and slower.median_seconds > faster.median_seconds * (
        1 + MIN_DIFFERENCE_SHARE
    )


def speed_difference_text(step: StepTime | None, other: StepTime | None) -> str:
    """``the same speed (±1 %)``, ``12 % faster``, ``2.1 times as fast``; empty where speeds cannot be compared."""
    if step is None or other is None or step.median_seconds <= 0 or other.median_seconds <= 0:
        return ""
    if not is_clearly_different(step, other):
        uncertainty = max(
            relative_half_width(step), relative_half_width(other), abs(other.median_seconds / step.median_seconds - 1)
        )
        return (
            f"the same speed (±{max(100 * uncertainty, 1):.0f} %)"
            if uncertainty <= _MAX_HALF_WIDTH_SHARE
            else "speeds cannot be told apart"
        )
    ratio = other.median_seconds / step.median_seconds
    if ratio >= 2:
        return f"{ratio:.1f} times as fast"
    if ratio > 1:
        return f"{100 * (ratio - 1):.0f} % faster"
    return f"{100 * (1 - ratio):.0f} % slower" if ratio > 0.5 else f"{1 / ratio:.1f} times as slow"


def slowdown_factor(alone: StepTime | None, others: Sequence[Trial], *, simulated: bool) -> float | None:
    """How many times longer than alone a step takes beside the others, at most; None where that may be noise."""
    times = [trial.step_time for trial in others if trial.step_time is not None]
    if simulated or alone is None or alone.median_seconds <= 0:
        return None
    return max(
        (time.median_seconds / alone.median_seconds for time in times if is_clearly_different(time, alone)),
        default=None,
    )
