"""Timing of steps, as benchmarks do it.

Warm-up is not counted and lasts until five blocks of steps agree. Then blocks of steps are timed, with the device
synchronised after each because GPU steps return early: at least twenty blocks, for the whole time budget. The result
is the median with its 95 % interval, and the 10th and 90th percentiles.
"""

from __future__ import annotations

import math
import time

BLOCKS = 20


def measure(step, synchronise, seconds, report_progress=None, flops=None, examples=None, bytes_moved=None):
    """Times steps; returns the fields of a ``throughput`` event.

    ``step()`` does one step, ``synchronise(result)`` waits until the device has finished. ``flops``, ``examples`` and
    ``bytes_moved`` are the amounts of one step. ``report_progress(steps, elapsed)`` is called between blocks, untimed.
    """
    began = time.perf_counter()
    synchronise(step())
    first_step_seconds = time.perf_counter() - began
    # Long enough that the cost of synchronising does not matter.
    block_seconds = min(0.05, max(0.002, seconds / (1.25 * BLOCKS)))
    per_block = max(1, min(10000, int(block_seconds / max(first_step_seconds, 1e-7))))
    warmup_steps, warmup_blocks = 2, []
    until = time.perf_counter() + max(0.3 * seconds, 3 * first_step_seconds * per_block)
    while len(warmup_blocks) < 5 or max(warmup_blocks) > 1.05 * min(warmup_blocks):
        warmup_blocks = [*warmup_blocks[-4:], block(step, synchronise, per_block)]
        warmup_steps += per_block
        if time.perf_counter() > until:
            break
    if len(warmup_blocks) >= 2:
        # The first step, which determined the length of blocks, may have been slow.
        per_block = max(1, min(10000, int(block_seconds / max(min(warmup_blocks) / per_block, 1e-7))))
    blocks = []
    began = reported = time.perf_counter()
    while len(blocks) < BLOCKS or time.perf_counter() - began < seconds:
        blocks.append(block(step, synchronise, per_block) / per_block)
        now = time.perf_counter()
        if report_progress is not None and now - reported > 0.25:
            reported = now
            report_progress(len(blocks) * per_block, now - began)
    return summary(blocks, per_block, warmup_steps, flops, examples, bytes_moved)


def fixed(step, synchronise, per_block, examples=None):
    """The same with a fixed number of steps, for workers that must do equally many."""
    block(step, synchronise, per_block)
    blocks = [block(step, synchronise, per_block) / per_block for _ in range(BLOCKS)]
    return summary(blocks, per_block, per_block, examples=examples)


def summary(blocks, per_block, warmup, flops=None, examples=None, bytes_moved=None):
    """Fields of a ``throughput`` event, from the seconds per step of each block."""
    blocks = sorted(blocks)
    median = quantile(blocks, 0.5)
    low, high = median_interval(blocks)
    return {
        "steps": len(blocks) * per_block,
        "warmup_steps": warmup,
        "steps_per_block": per_block,
        "median_step_seconds": median,
        "p10_step_seconds": quantile(blocks, 0.1),
        "p90_step_seconds": quantile(blocks, 0.9),
        "median_low_seconds": low,
        "median_high_seconds": high,
        "steps_per_second": 1.0 / median,
        "flops_per_second": None if flops is None else flops / median,
        "examples_per_second": None if examples is None else examples / median,
        "bytes_per_second": None if bytes_moved is None else bytes_moved / median,
    }


def median_interval(ordered):
    """The 95 % interval of the median of sorted values, by order statistics (of any distribution)."""
    middle, half_width = len(ordered) / 2, 0.98 * math.sqrt(len(ordered))
    low, high = max(math.floor(middle - half_width), 1), min(math.ceil(1 + middle + half_width), len(ordered))
    return ordered[low - 1], ordered[high - 1]


def block(step, synchronise, count):
    """Seconds for ``count`` steps, until the last one has finished."""
    began = time.perf_counter()
    for _ in range(count):
        result = step()
    synchronise(result)
    return time.perf_counter() - began


def quantile(ordered, share):
    """Linear interpolation in a sorted list."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
