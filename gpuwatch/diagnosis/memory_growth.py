"""Memory that grows with every step of the work until none is left: tensors that somebody keeps.

What a step takes and gives back makes the curve of memory in use go up and down; what is kept lifts its floor.
The floor at a moment is the least that was in use from then on: it never falls, rises with each tensor that is
kept, and is flat where a training only takes and gives back.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gpuwatch.model.run import MemoryPoint, Oom

_RISES = 4
_RISE = 0.01
"""A rise of less than this share of the peak is noise."""
_SHARE = 0.5
"""Of what was in use at the end, so much at least was added in the rises."""
_LARGEST = 0.5
"""One rise that is more of it than this is the model, or a batch."""
_SECONDS = 2.0
_STEADY = 0.8
"""How well the floor follows a straight line over time (R²)."""
_ALIKE, _ALIKE_SHARE = 4, 0.5
"""So many blocks of one size, with so much of the memory in use, are worth a word."""
_MANY, _MANY_SHARE = 16, 0.8
"""So many are hardly a model's: its layers differ, and each brings tensors of several sizes."""


@dataclass(frozen=True, slots=True)
class Growth:
    """From ``first_bytes`` to ``last_bytes``, in so many rises over so long."""

    first_bytes: int
    last_bytes: int
    rises: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Kept:
    """Blocks of one size that were in use when memory ended."""

    count: int
    each_bytes: int
    asked: bool
    """Whether it is the very size that was asked when nothing was left."""
    many: bool
    """Whether they are so many, and so much of the memory, that a list that grows explains them best."""


def kept(oom: Oom) -> Kept | None:
    """What a loop that keeps its results leaves, by the allocator's own list; None where the sizes are mixed."""
    used = oom.in_use_bytes
    asked = (oom.alike_blocks, oom.requested_bytes, True)
    for count, each, same in ((oom.equal_blocks, oom.equal_block_bytes, False), asked):
        if count is not None and each and used and count >= _ALIKE and count * each >= _ALIKE_SHARE * used:
            many = count >= _MANY and count * each > _MANY_SHARE * used
            return Kept(count, each, same or count == oom.alike_blocks, many)
    return None


def growth(points: Sequence[MemoryPoint]) -> Growth | None:
    """The steady rise of what the allocator has in use, up to the end; None where there is none."""
    known = [(point.t, point.allocator_bytes) for point in points if point.allocator_bytes]
    # A few bytes of constants are no beginning.
    known = [(t, amount) for t, amount in known if amount >= _RISE * known[-1][1]]
    if len(known) <= _RISES:
        return None
    floor = known[-1][1]
    floors: list[tuple[float, int]] = []
    for t, amount in reversed(known):
        floor = min(floor, amount)
        floors.append((t, floor))
    floors.reverse()
    first, last = floors[0][1], floors[-1][1]
    levels = [floors[0]]
    for t, amount in floors:
        if amount - levels[-1][1] >= _RISE * last:
            levels.append((t, amount))
    rises = [after[1] - before[1] for before, after in pairwise(levels)]
    seconds = levels[-1][0] - known[0][0]
    if len(rises) < _RISES or last - first < _SHARE * last or seconds < _SECONDS:
        return None
    if max(rises) > _LARGEST * (last - first) or not _steady(floors):
        return None
    return Growth(first, last, len(rises), seconds)


def _steady(floors: Sequence[tuple[float, int]]) -> bool:
    """Whether it rose all the time, and not in one stretch."""
    times, amounts = [t for t, _ in floors], [float(amount) for _, amount in floors]
    if len(set(times)) < 2 or len(set(amounts)) < 2:
        return False
    return statistics.correlation(times, amounts) ** 2 >= _STEADY
