"""GPU time of a stretch of a recording: of the hours that are stored, and of the samples of the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import islice

from gpuwatch.machine.history.sample_chunks import whole
from gpuwatch.machine.recording import retention
from gpuwatch.machine.recording.gpu_time import HOUR, GpuTime, GpuTimeMeter, hour_of, merged
from gpuwatch.machine.recording.reader import OPEN, Recording


def gpu_time(
    recording: Recording, begin: float, end: float, progress: Callable[[float], None] = lambda share: None
) -> GpuTime:
    """GPU time from ``begin`` to ``end``: of stored hours where they are whole, else of the samples.

    What was recorded twice because the clock was set back is counted twice. ``progress``: called with the share of
    the samples that was read.
    """
    hours = recording.hours(begin, end)  # damaged ones are counted again
    return merged([*hours.values(), *_counted(recording, begin, end, hours.keys(), progress)])


def _counted(
    recording: Recording, begin: float, end: float, stored: Collection[int], progress: Callable[[float], None]
) -> Iterable[GpuTime]:
    """The GPU time of samples whose hour is not stored; the samples that are in no block yet always."""
    meter = GpuTimeMeter(max((run.interval for run in recording.runs), default=retention.INTERVAL))
    blocks = recording.recorded_blocks()
    wanted = []
    for number, first, last, _ in blocks:
        hours = range(hour_of(first), hour_of(last) + 1, HOUR)
        missing = number == OPEN or not all(hour in stored for hour in hours)
        wanted.append(first <= end and last >= begin and missing)
    read = 0
    for place, (number, _, _, count) in enumerate(blocks):
        # With the block before it, whose last sample begins the first interval.
        if not any(wanted[place : place + 2]):
            continue
        for kept in islice(whole(recording.positions_of(number)), count):
            inside = begin < kept.at <= end and (number == OPEN or hour_of(kept.at) not in stored)
            meter.look(kept.snapshot, counted=wanted[place] and inside)
        read += 1
        progress(read / max(sum(wanted), 1))
    return meter.taken().values()
