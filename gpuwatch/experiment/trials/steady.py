"""When a measurement has seen enough steps: the 95 % interval of the median time of a step."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuwatch.core.model.trials import StepTime

_Z = 1.96
"""Quantile of the normal distribution for 95 %."""
_LEAST = 6
"""Fewer values have no pair of ranks that holds the median with 95 %."""
STEADY = 0.02
"""Half the interval, as a share of the median, from which on a measurement is steady."""


def step_time(times: Sequence[float]) -> StepTime | None:
    """The median of step times in seconds with its 95 % interval; None for fewer than 6.

    The interval is that of order statistics (binomial, by its normal approximation): it assumes nothing about how step
    times are distributed.
    """
    count = len(times)
    if count < _LEAST:
        return None
    ordered = sorted(times)
    half = _Z * math.sqrt(count) / 2
    low = max(math.floor(count / 2 - half), 1)
    high = min(math.ceil(1 + count / 2 + half), count)
    middle = count // 2
    median = ordered[middle] if count % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return StepTime(median_seconds=median, low_seconds=ordered[low - 1], high_seconds=ordered[high - 1], timed=count)


def is_steady(time: StepTime | None) -> bool:
    """Whether the interval is within 2 % of the median."""
    if time is None or time.median_seconds <= 0:
        return False
    return time.high_seconds - time.low_seconds <= 2 * STEADY * time.median_seconds
