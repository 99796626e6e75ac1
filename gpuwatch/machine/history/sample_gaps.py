"""Gaps: times without samples, and from how many seconds on a time between two samples is one."""

from __future__ import annotations

from typing import NamedTuple

MAX_UNOBSERVED_SECONDS = 15.0
"""A time without samples that is counted for nothing and nobody, if samples are usually more frequent."""
MIN_GAP_INTERVALS = 2.5
"""A gap is at least so many intervals."""
_MAX_LATE_SECONDS = 4.0
"""Beyond its interval, a sample may be so late."""


def gap_limit(interval: float) -> float:
    """From how long on it is told as a gap, if a sample is taken every ``interval`` seconds."""
    return max(MIN_GAP_INTERVALS * interval, interval + _MAX_LATE_SECONDS)


def unobserved_limit(interval: float) -> float:
    """Seconds beyond which the time between two samples is not counted for any process or condition."""
    return max(MAX_UNOBSERVED_SECONDS, MIN_GAP_INTERVALS * interval)


class Gap(NamedTuple):
    """A time without samples. Times are seconds since the epoch."""

    begin: float
    """Time of the last sample before it."""
    end: float
    """Time of the first sample after it."""
    damaged: bool
    """Whether there are samples of it that could not be read."""
