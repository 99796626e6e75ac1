"""Memory that grows with every step until none is left, because the program keeps tensors.

Memory that a step allocates and frees makes the curve go up and down; memory that is kept raises its floor. The floor
at a moment is the least in use from then on: it never falls, rises with each kept tensor, and is flat in a training
that frees what it allocates.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gpuwatch.core.model.run import Oom, Throughput
from gpuwatch.core.model.run_memory import MemoryPoint

_MIN_RISES = 4
_MIN_RISE_SHARE = 0.01
"""A rise of less than this share of the peak is noise."""
_MIN_RISEN_SHARE = 0.5
"""Minimum share of the final memory in use that the rises added."""
_MAX_SINGLE_RISE_SHARE = 0.5
"""A single rise above this share is the model, or a batch."""
_MIN_SECONDS = 2.0
_MIN_R_SQUARED = 0.8
"""Minimum R² of the floor with a straight line over time."""
_MIN_EQUAL_BLOCKS, _MIN_EQUAL_BLOCKS_SHARE = 4, 0.5
"""So many blocks of one size, with this share of the memory in use, are reported."""
_MIN_MANY_BLOCKS, _MIN_MANY_BLOCKS_SHARE = 16, 0.8
"""So many are hardly a model's, whose layers have tensors of several sizes."""
_MAX_TEMPORARY_BLOCKS = 4
"""Blocks of that size that a step may need only for a moment."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth from ``first_bytes`` to ``last_bytes``, which rose ``rises`` times in ``seconds``."""

    first_bytes: int
    last_bytes: int
    rises: int
    seconds: float


@dataclass(frozen=True, slots=True)
class EqualBlocks:
    """Blocks of one size in use at the failure."""

    count: int
    each_bytes: int
    is_requested_size: bool
    """Whether it is exactly the requested size."""
    are_many: bool
    """Whether there are so many that a growing list explains them best."""


def equal_blocks(oom: Oom) -> EqualBlocks | None:
    """Equal blocks in the allocator's list, as left by a loop that keeps its results; None if sizes are mixed."""
    used = oom.in_use_bytes
    requested = (oom.alike_blocks, oom.requested_bytes, True)
    for count, each, same in ((oom.equal_blocks, oom.equal_block_bytes, False), requested):
        if count and each and used and count >= max(_MIN_EQUAL_BLOCKS, _MIN_EQUAL_BLOCKS_SHARE * used / each):
            are_many = count >= _MIN_MANY_BLOCKS and count * each > _MIN_MANY_BLOCKS_SHARE * used
            return EqualBlocks(count, each, same or count == oom.alike_blocks, are_many)
    return None


def one_block_per_step(oom: Oom, speed: Throughput | None) -> bool:
    """Whether each step left a block: a fast GPU is full before samples show growth."""
    blocks = equal_blocks(oom)
    if speed is None or blocks is None:
        return False
    return blocks.are_many and abs(blocks.count - speed.steps) <= _MAX_TEMPORARY_BLOCKS


def steady_growth(points: Sequence[MemoryPoint]) -> Growth | None:
    """The steady growth of the allocator's memory in use up to the end; None without one."""
    known = [(point.t, point.allocator_bytes) for point in points if point.allocator_bytes]
    # A few bytes of constants are not the start.
    known = [(t, amount) for t, amount in known if amount >= _MIN_RISE_SHARE * known[-1][1]]
    if len(known) <= _MIN_RISES:
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
        if amount - levels[-1][1] >= _MIN_RISE_SHARE * last:
            levels.append((t, amount))
    rises = [after[1] - before[1] for before, after in pairwise(levels)]
    seconds = levels[-1][0] - known[0][0]
    if len(rises) < _MIN_RISES or last - first < _MIN_RISEN_SHARE * last or seconds < _MIN_SECONDS:
        return None
    if max(rises) > _MAX_SINGLE_RISE_SHARE * (last - first) or not _is_steady(floors):
        return None
    return Growth(first, last, len(rises), seconds)


def _is_steady(floors: Sequence[tuple[float, int]]) -> bool:
    """Whether it rose all the time rather than in one stretch."""
    times, amounts = [t for t, _ in floors], [float(amount) for _, amount in floors]
    if len(set(times)) < 2 or len(set(amounts)) < 2:
        return False
    return statistics.correlation(times, amounts) ** 2 >= _MIN_R_SQUARED
