"""Gaps: times without samples, and from how many seconds on a time between two samples is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

MAX_UNOBSERVED_SECONDS = 15.0
"""A time without samples that is counted for nothing and nobody, if samples are usually more frequent."""
MIN_GAP_INTERVALS = 2.5
"""A gap is at least so many intervals."""
_MAX_LATE_SECONDS = 4.0
"""Beyond its interval, a sample may be so late."""


def gap_limit(interval: float) -> float:
    """From how many seconds on a time is shown as a gap, if a sample is taken every ``interval`` seconds."""
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
    """Whether samples were recorded in it that cannot be read."""


def join_spans(spans: Iterable[tuple[float, float]], max_gap: Callable[[float], float]) -> list[tuple[float, float]]:
    """Joins spans (begin and end, in the order of time) between which there is no gap.

    ``max_gap``: the most seconds before the span that begins at a time that are no gap.
    """
    joined: list[tuple[float, float]] = []
    for begin, end in spans:
        if joined and begin - joined[-1][1] <= max_gap(begin):
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined
