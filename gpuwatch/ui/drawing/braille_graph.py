"""History as braille: two dot columns per cell, four dots high, on a fixed axis.

Columns are buckets of absolute time, so a graph moves left without shimmering; a bucket without
a sample is a gap. A value at the bottom of the axis still shows its lowest dot: zero is a value.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from operator import sub
from typing import TYPE_CHECKING

from gpuwatch.core.formatting.units import gib_number
from gpuwatch.core.model.metrics import MetricSpec, Unit
from gpuwatch.core.model.snapshot import Device
from gpuwatch.machine.history.metric_history import History

if TYPE_CHECKING:
    from gpuwatch.session.view import View

TIME_SPANS_SECONDS = (60, 120, 300, 600)
"""Time spans of a graph, in seconds."""
_MISSING_AFTER_INTERVALS = 1.9
"""A sample is missing when it is this many intervals late."""

# Bits of the left and right dot column in the braille block, from the bottom.
_LEFT_DOT_BITS = (0x40, 0x04, 0x02, 0x01)
_RIGHT_DOT_BITS = (0x80, 0x20, 0x10, 0x08)
_FILL_LEFT = tuple(sum(_LEFT_DOT_BITS[:n]) for n in range(5))
_FILL_RIGHT = tuple(sum(_RIGHT_DOT_BITS[:n]) for n in range(5))


def axis_text(spec: MetricSpec, axis: tuple[float, float]) -> str:
    """Both ends of an axis with its unit."""
    low, high = axis
    return f"0–{gib_number(high)} GiB" if spec.unit is Unit.BYTES else f"{low:.0f}–{high:.0f} {spec.unit.value}"


def recent_columns(
    view: View, times: Sequence[float], values: Sequence[float | None], width: int, *, whole: bool = False
) -> tuple[int, list[float | None]]:
    """The time span of a graph ``width`` cells wide, and its columns up to the moment shown.

    ``whole``: as much of the longest span as there are samples of, whatever the width.
    """
    span = longest_time_span(width, view.interval)
    if whole and times:
        span = next((span for span in TIME_SPANS_SECONDS if view.moment - times[0] <= span), TIME_SPANS_SECONDS[-1])
    return span, column_means(times, values, columns=width * 2, span=span, until=view.moment, interval=view.interval)


def longest_time_span(width: int, interval: float) -> int:
    """The longest span, in seconds, for which a dot column covers at most four samples."""
    longest = max(width * 2, 1) * max(interval, 1.0) * 4
    return max((span for span in TIME_SPANS_SECONDS if span <= longest), default=TIME_SPANS_SECONDS[0])


def axis_ends(spec: MetricSpec, device: Device, history: History) -> tuple[float, float] | None:
    """Both ends of the metric's axis on this device; None if its upper end was never read.

    A lost device no longer reports its total or limit; the last known one keeps its history drawn.
    """

    def number(metric: str) -> float | None:
        now = device.number(metric)
        return history.last_number(device.uuid, metric) if now is None else now

    return spec.axis.ends(number) if spec.axis is not None else None


def column_means(
    times: Sequence[float], values: Sequence[float | None], *, columns: int, span: float, until: float, interval: float
) -> list[float | None]:
    """The mean of each column's samples, oldest first; None for a gap.

    ``values`` may be shorter than ``times``: both end now. A column that falls between two samples
    taken at the interval of that time repeats the previous one and is not a gap.
    """
    width = span / columns
    last = math.floor(until / width)
    first = last - columns + 1
    skip = len(times) - len(values)
    all_times = list(times)
    start = max(skip, bisect_left(all_times, first * width) - 1, 0)
    reach = math.ceil(interval * _MISSING_AFTER_INTERVALS / width)
    seen_at = all_times[start:]
    seen = list(islice(values, start - skip, None)) if isinstance(values, deque) else list(values[start - skip :])
    constant = _constant_range(seen_at, seen, interval, first, width)
    if constant is not None and last - first - constant[1] < reach:
        return [None] * constant[0] + [values[-1]] * (columns - constant[0])
    valid_seconds = _valid_seconds(tuple(seen_at), interval)
    sums = [0.0] * columns
    counts = [0] * columns
    missing = [False] * columns
    valid_ends = [0] * columns
    last_value: float | None = None
    end = 0
    for place, (moment, value) in enumerate(zip(seen_at, seen, strict=True)):
        column = math.floor(moment / width) - first
        if column >= columns:
            break
        valid_until = math.ceil((moment + valid_seconds[place]) / width) - first if valid_seconds else column + reach
        if column < 0:
            last_value, end = value, valid_until  # sampled before the first column, and still valid in it
            continue
        valid_ends[column] = valid_until
        if value is None:
            missing[column] = True
        else:
            sums[column] += value
            counts[column] += 1
    result: list[float | None] = []
    for column in range(columns):
        if counts[column]:
            last_value, end = sums[column] / counts[column], valid_ends[column]
        elif missing[column] or column >= end:
            last_value = None
        result.append(last_value)
    return result


@lru_cache(maxsize=16)
def _valid_seconds(times: tuple[float, ...], interval: float) -> tuple[float, ...]:
    """How many seconds each sample is valid; empty if all follow each other at ``interval``.

    An earlier, longer interval is no gap: a gap is a step longer than the steps around it.
    """
    steps = list(map(sub, times[1:], times))
    if max(steps, default=0.0) <= interval * _MISSING_AFTER_INTERVALS:
        return ()
    valid_seconds = []
    for place, step in enumerate(steps):
        longest = max(usual_step(steps, place), interval) * _MISSING_AFTER_INTERVALS
        valid_seconds.append(step + 1e-6 if step <= longest else longest)
    return (*valid_seconds, interval * _MISSING_AFTER_INTERVALS)


def usual_step(steps: Sequence[float], place: int) -> float:
    """The usual step length around a step: the upper median of the two before and the two after it."""
    around = sorted((*steps[max(place - 2, 0) : place], *steps[place + 1 : place + 3]))
    return around[len(around) // 2] if around else 0.0


def _constant_range(
    times: list[float], values: list[float | None], interval: float, first: int, width: float
) -> tuple[int, int] | None:
    """Columns of the first and the last sample if the value never changed and there is no gap, else None.

    Nothing has to be averaged then, so an idle device costs only a comparison.
    """
    if not values or values[-1] is None or values.count(values[-1]) != len(values):
        return None
    begin = bisect_left(times, first * width)
    seen = times[begin:]
    if not seen or max(map(sub, seen[1:], seen), default=0.0) > interval * 1.5:
        return None
    first_column, last_column = math.floor(seen[0] / width) - first, math.floor(seen[-1] / width) - first
    carried = first_column > 0 and begin > 0  # the previous sample may still be valid in the first column
    return (first_column, last_column) if first_column >= 0 and not carried else None


@lru_cache(maxsize=256)
def braille(columns: tuple[float | None, ...], *, low: float, high: float, rows: int = 1) -> tuple[str, ...]:
    """``rows`` strings of ``len(columns) / 2`` cells, the top row first."""
    levels = rows * 4
    extent = max(high - low, 1e-9)
    heights = [
        # Rounded first: the mean of equal values may differ in the last bit.
        0 if value is None else min(max(math.ceil(round((value - low) / extent * levels - 0.25, 6)), 1), levels)
        for value in columns
    ]
    if len(heights) % 2:
        heights.insert(0, 0)
    pairs = list(zip(heights[::2], heights[1::2], strict=True))
    lines = []
    for row in range(rows - 1, -1, -1):
        base = row * 4
        cells = (
            chr(0x2800 + _FILL_LEFT[min(max(a - base, 0), 4)] + _FILL_RIGHT[min(max(b - base, 0), 4)])
            if a > base or b > base
            else " "
            for a, b in pairs
        )
        lines.append("".join(cells))
    return tuple(lines)
