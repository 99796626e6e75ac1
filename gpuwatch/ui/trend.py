"""History as braille: two columns of dots a cell, four dots a row, on a fixed axis.

Columns are buckets of absolute time, so that a graph moves left and never shimmers; a bucket without
a sample is a gap. A reading of the bottom of the axis still shows its lowest dot: zero is a value.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from operator import sub

from gpuwatch.history.ring import History
from gpuwatch.model.metrics import MetricSpec
from gpuwatch.model.snapshot import Device

SPANS = (60, 120, 300, 600)
"""Seconds that a graph may show."""
_LATE = 1.9
"""Intervals after which a sample that has not come is missing."""

# Dots of a column from the bottom, left and right: their bits in the braille block.
_LEFT = (0x40, 0x04, 0x02, 0x01)
_RIGHT = (0x80, 0x20, 0x10, 0x08)
_FILL_LEFT = tuple(sum(_LEFT[:n]) for n in range(5))
_FILL_RIGHT = tuple(sum(_RIGHT[:n]) for n in range(5))


def span_for(width: int, interval: float) -> int:
    """The longest span for which a column of dots is at most four samples wide."""
    columns = max(width * 2, 1)
    best = SPANS[0]
    for span in SPANS:
        if span / columns <= max(interval, 1.0) * 4:
            best = span
    return best


def axis_of(spec: MetricSpec, device: Device, history: History) -> tuple[float, float] | None:
    """Both ends of the metric's axis on this device; None where its upper end was never read.

    A device that is lost tells neither its total nor its limit any more, and keeps its past.
    """

    def number(metric: str) -> float | None:
        now = device.number(metric)
        return history.known(device.uuid, metric) if now is None else now

    return spec.axis.ends(number) if spec.axis is not None else None


def buckets(
    times: Sequence[float],
    values: Sequence[float | None],
    *,
    columns: int,
    span: float,
    until: float,
    interval: float,
) -> list[float | None]:
    """The mean of each column's samples, oldest first; None where nothing was measured.

    ``values`` may be shorter than ``times``: both end now. A column that falls between two samples
    of the interval that was usual then repeats the one before it, which is not a gap.
    """
    width = span / columns
    last = math.floor(until / width)
    first = last - columns + 1
    skip = len(times) - len(values)
    every = list(times)
    start = max(skip, bisect_left(every, first * width) - 1, 0)
    reach = math.ceil(interval * _LATE / width)
    seen_at = every[start:]
    seen = list(islice(values, start - skip, None)) if isinstance(values, deque) else list(values[start - skip :])
    steady = _steady(seen_at, seen, interval, first, width)
    if steady is not None and last - first - steady[1] < reach:
        return [None] * steady[0] + [values[-1]] * (columns - steady[0])
    holds = _holds(tuple(seen_at), interval)
    sums = [0.0] * columns
    counts = [0] * columns
    holes = [False] * columns
    ends = [0] * columns
    carried: float | None = None
    end = 0
    for place, (moment, value) in enumerate(zip(seen_at, seen, strict=True)):
        column = math.floor(moment / width) - first
        if column >= columns:
            break
        held = math.ceil((moment + holds[place]) / width) - first if holds else column + reach
        if column < 0:
            carried, end = value, held  # seen before the first column, and still so in it
            continue
        ends[column] = held
        if value is None:
            holes[column] = True
        else:
            sums[column] += value
            counts[column] += 1
    result: list[float | None] = []
    for column in range(columns):
        if counts[column]:
            carried, end = sums[column] / counts[column], ends[column]
        elif holes[column] or column >= end:
            carried = None
        result.append(carried)
    return result


@lru_cache(maxsize=16)
def _holds(times: tuple[float, ...], interval: float) -> tuple[float, ...]:
    """For how many seconds each sample stands; nothing where all follow each other as ``interval`` says.

    The interval may have been another one, which is no gap: that is a step longer than those around it.
    """
    steps = list(map(sub, times[1:], times))
    if max(steps, default=0.0) <= interval * _LATE:
        return ()
    holds = []
    for place, step in enumerate(steps):
        usual = max(usual_step(steps, place), interval)
        holds.append(step + 1e-6 if step <= usual * _LATE else usual * _LATE)
    return (*holds, interval * _LATE)


def usual_step(steps: Sequence[float], place: int) -> float:
    """What the steps around one of them are like: the upper median of two before it and two behind it."""
    around = sorted((*steps[max(place - 2, 0) : place], *steps[place + 1 : place + 3]))
    return around[len(around) // 2] if around else 0.0


def _steady(
    times: list[float], values: list[float | None], interval: float, first: int, width: float
) -> tuple[int, int] | None:
    """Columns of the first and the last sample where one value was measured all the time, without a gap.

    Nothing has to be averaged then: what an idle device costs is a comparison.
    """
    if not values or values[-1] is None or values.count(values[-1]) != len(values):
        return None
    begin = bisect_left(times, first * width)
    seen = times[begin:]
    if not seen or max(map(sub, seen[1:], seen), default=0.0) > interval * 1.5:
        return None
    ends = math.floor(seen[0] / width) - first, math.floor(seen[-1] / width) - first
    return ends if ends[0] >= 0 else None


def braille(columns: Sequence[float | None], *, low: float, high: float, rows: int = 1) -> list[str]:
    """``rows`` strings of ``len(columns) / 2`` cells, the top row first."""
    return list(_drawn(tuple(columns), low, high, rows))


@lru_cache(maxsize=256)
def _drawn(columns: tuple[float | None, ...], low: float, high: float, rows: int) -> tuple[str, ...]:
    levels = rows * 4
    extent = max(high - low, 1e-9)
    heights = [
        # Rounded first: the mean of equal values may differ from them in the last bit.
        0 if value is None else min(max(math.ceil(round((value - low) / extent * levels - 0.25, 6)), 1), levels)
        for value in columns
    ]
    if len(heights) % 2:
        heights.insert(0, 0)
    pairs = list(zip(heights[::2], heights[1::2], strict=True))
    lines = []
    for row in range(rows - 1, -1, -1):
        base = row * 4
        lines.append(
            "".join(
                chr(0x2800 + _FILL_LEFT[min(max(a - base, 0), 4)] + _FILL_RIGHT[min(max(b - base, 0), 4)])
                if a > base or b > base
                else " "
                for a, b in pairs
            )
        )
    return tuple(lines)
