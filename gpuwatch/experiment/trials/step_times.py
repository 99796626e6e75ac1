"""Step times: their median and spread, as numbers and as text, and when enough of them were measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from gpuwatch.core.formatting.units import UNKNOWN, per_second_text
from gpuwatch.core.model.run import Throughput
from gpuwatch.core.model.try_results import StepTime

UNRELIABLE_SPREAD_SHARE = 0.10
"""Share of the median that p10 to p90 may span; beyond, the speed is unreliable."""
UNRELIABLE_NOTE = "▲ step times vary by more than 10 %: this speed is unreliable"
_NORMAL_QUANTILE_95 = 1.96
"""Quantile of the normal distribution for 95 %."""
_MIN_STEPS = 6
"""Fewer values have no pair of ranks that holds the median with 95 %."""
_WAIT_FACTOR, _MIN_WAITS, _MAX_MEDIAN_TO_MEAN = 2.0, 6, 0.5
"""Waits: steps longer than this multiple of the mean, at least so many, with a median below this share of the mean."""
STEADY_SHARE = 0.02
"""Half the interval, as a share of the median, from which on a measurement is steady."""


def speed_text(throughput: Throughput | None) -> str:
    """``412 ±2``: median steps per second, and half the range from p10 to p90."""
    if throughput is None:
        return UNKNOWN
    text = per_second_text(throughput.steps_per_second)
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
    """Whether step times vary so much that the speed is unreliable."""
    if throughput is None:
        return False
    median = throughput.median_step_seconds
    return median > 0 and throughput.p90_step_seconds - throughput.p10_step_seconds > UNRELIABLE_SPREAD_SHARE * median


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
    count = len(ordered)
    if count < _MIN_STEPS:
        return None
    half_width = _NORMAL_QUANTILE_95 * math.sqrt(count) / 2
    low_rank = max(math.floor(count / 2 - half_width), 1)
    high_rank = min(math.ceil(1 + count / 2 + half_width), count)
    median = statistics.median(ordered)
    return StepTime(
        median_seconds=median, low_seconds=ordered[low_rank - 1], high_seconds=ordered[high_rank - 1], timed=count
    )


def is_steady(time: StepTime | None) -> bool:
    """Whether the interval is within 2 % of the median."""
    return time is not None and time.median_seconds > 0 and relative_half_width(time) <= STEADY_SHARE


def relative_half_width(time: StepTime) -> float:
    """Half the interval, as a share of the median."""
    return (time.high_seconds - time.low_seconds) / 2 / time.median_seconds if time.median_seconds > 0 else 0.0
