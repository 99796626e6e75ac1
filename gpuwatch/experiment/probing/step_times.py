"""Step times: their median and spread, when enough of them were measured, and whether two speeds differ, in words."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from gpuwatch.core.formatting.units import UNKNOWN, count_rate
from gpuwatch.core.model.run import Throughput
from gpuwatch.core.model.try_results import StepTime, Trial

_UNRELIABLE_SHARE = 0.05
"""Half the interval of the median, as a share of it, beyond which the speed is unreliable."""
UNRELIABLE_REASON = "the median step time is uncertain by more than 5 %"
UNRELIABLE_NOTE = f"▲ {UNRELIABLE_REASON}: this speed is unreliable"
_MIN_RUN_DIFFERENCE_SHARE = 0.10
"""Speeds of one run each that differ by less are the same: equal probes differed by up to 5 % on an H200."""
_NORMAL_QUANTILE_95 = 1.96
"""Quantile of the normal distribution for 95 %."""
MIN_TIMED_STEPS = 6
"""Fewer values have no pair of ranks that holds the median with 95 %."""
_WAIT_FACTOR, _MIN_WAITS, _MAX_MEDIAN_TO_MEAN = 2.0, 6, 0.5
"""Waits: steps longer than this multiple of the mean, at least so many, with a median below this share of the mean."""
STEADY_SHARE = 0.02
"""Half the interval, as a share of the median, from which on a measurement is steady."""
MIN_DIFFERENCE_SHARE = 0.02
"""Speeds that differ by less are the same: no measurement is steadier."""
_MAX_HALF_WIDTH_SHARE = 0.10
"""Beyond this half-width of the interval, as a share of the time of a step, speeds that overlap are not the same."""


def speed_text(throughput: Throughput | None) -> str:
    """``412 ±2``: median steps per second, and half the range from p10 to p90."""
    if throughput is None:
        return UNKNOWN
    text = count_rate(throughput.steps_per_second)
    fast_seconds, slow_seconds = throughput.p10_step_seconds, throughput.p90_step_seconds
    if fast_seconds <= 0 or slow_seconds <= 0:
        return text
    decimals = len(text.partition(".")[2])
    return f"{text} ±{abs(1 / fast_seconds - 1 / slow_seconds) / 2:.{decimals}f}"


def step_time_text(value: float) -> str:
    """Three significant digits, since steps are compared: ``1.08 ms``."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if value * factor >= 1:
            return f"{value * factor:#.3g} {unit}".replace(". ", " ")
    return f"{value * 1e6:#.3g} µs".replace(". ", " ")


def is_unreliable(throughput: Throughput | None) -> bool:
    """Whether too few step times were measured, or they vary too much, to know the median within 5 %.

    Single steps may well vary by more: what is compared is the median of many.
    """
    return throughput is not None and relative_half_width(_median_step(throughput)) > _UNRELIABLE_SHARE


def _median_step(throughput: Throughput) -> StepTime:
    """The median of a run with its interval; with that of single steps in documents of older versions."""
    low, high = throughput.median_low_seconds, throughput.median_high_seconds
    return StepTime(
        median_seconds=throughput.median_step_seconds,
        low_seconds=throughput.p10_step_seconds if low is None else low,
        high_seconds=throughput.p90_step_seconds if high is None else high,
        timed=throughput.steps,
    )


def _averaged_over_waits(times: Sequence[float]) -> Sequence[float]:
    """Mean times of the steps from one wait to the next, if most steps only queue work for the GPU; else as they are.

    PyTorch's steps do, until one asks for a result (``loss.item()`` every ten steps) and waits for the work of all.
    """
    mean = statistics.fmean(times) if times else 0.0
    wait_indices = [number for number, seconds in enumerate(times) if seconds > _WAIT_FACTOR * mean]
    if len(wait_indices) < _MIN_WAITS or statistics.median(times) >= _MAX_MEDIAN_TO_MEAN * mean:
        return times
    return [statistics.fmean(times[previous + 1 : wait + 1]) for previous, wait in pairwise(wait_indices)]


def median_step(times: Sequence[float]) -> StepTime | None:
    """The median of step times in seconds with its 95 % interval; None for fewer than 6.

    Where steps wait for the GPU only now and then, each wait counts for the steps since the one before it.

    The interval is that of order statistics (binomial, by its normal approximation): it assumes nothing about how step
    times are distributed.
    """
    ordered = sorted(_averaged_over_waits(times))
    if len(ordered) < MIN_TIMED_STEPS:
        return None
    low, high = median_interval(ordered)
    return StepTime(median_seconds=statistics.median(ordered), low_seconds=low, high_seconds=high, timed=len(ordered))


def median_interval(ordered: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median of sorted values."""
    count = len(ordered)
    half_width = _NORMAL_QUANTILE_95 * math.sqrt(count) / 2
    low, high = max(math.floor(count / 2 - half_width), 1), min(math.ceil(1 + count / 2 + half_width), count)
    return ordered[low - 1], ordered[high - 1]


def speed_of_steps(counted: str, count: int, warm_up: int, times: Sequence[float]) -> Throughput:
    """The speed of steps that took these ``times``, in seconds, after ``warm_up`` of all ``count``."""
    ordered = sorted(times)
    median = ordered[len(ordered) // 2]
    low, high = median_interval(ordered)
    return Throughput(
        counted=counted,
        steps=count,
        warmup_steps=warm_up,
        median_step_seconds=median,
        p10_step_seconds=ordered[len(ordered) // 10],
        p90_step_seconds=ordered[len(ordered) * 9 // 10],
        median_low_seconds=low,
        median_high_seconds=high,
        steps_per_second=1 / median if median else 0.0,
    )


def is_steady(time: StepTime | None) -> bool:
    """Whether the interval is within 2 % of the median."""
    return time is not None and time.median_seconds > 0 and relative_half_width(time) <= STEADY_SHARE


def relative_half_width(time: StepTime) -> float:
    """Half the interval, as a share of the median."""
    return (time.high_seconds - time.low_seconds) / 2 / time.median_seconds if time.median_seconds > 0 else 0.0


def why_not_comparable(throughput: Throughput, other: Throughput, *, simulated: bool) -> str:
    """Why two speeds of the same work cannot be compared; empty if they can."""
    if simulated:
        return "speeds not compared, as simulated GPUs compute on this computer's CPU"
    if is_unreliable(throughput) or is_unreliable(other):
        return f"speeds not compared, as {UNRELIABLE_REASON}"
    distinct = is_clearly_different(_median_step(throughput), _median_step(other), by=_MIN_RUN_DIFFERENCE_SHARE)
    return "" if distinct else "same speed within noise"


def is_clearly_different(step: StepTime, other: StepTime, *, by: float = MIN_DIFFERENCE_SHARE) -> bool:
    """Whether the intervals show that one is faster, by more than this share: 2 % where runs took turns."""
    faster, slower = sorted((step, other), key=lambda time: time.median_seconds)
    return faster.high_seconds < slower.low_seconds and slower.median_seconds > faster.median_seconds * (1 + by)


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
