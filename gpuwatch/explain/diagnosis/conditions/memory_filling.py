"""GPU memory that grows steadily and will soon be full, and memory that is nearly full."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from gpuwatch.core.formatting.durations import steady_duration
from gpuwatch.core.formatting.units import memory, size
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Process
from gpuwatch.explain.diagnosis.conditions.condition import Condition, Occurrence, Sign, condition
from gpuwatch.explain.diagnosis.conditions.sample_context import MEMORY_WINDOW_SECONDS, SampleContext
from gpuwatch.machine.history.process_labels import label_in_sentence

_WARNING_SECONDS = 600.0
"""Seconds to full from which growth is a warning."""
_URGENT_SECONDS = 30.0
"""Seconds to full below which growth over :data:`_SHORT_WINDOW_SECONDS` is enough; else it must last the window."""
_SHORT_WINDOW_SECONDS = 20.0
_MIN_USED_SHARE = 0.5
"""Share of the device below which growth is not yet a problem."""
_LOADING_SECONDS = 300.0
"""Age in seconds below which the largest holder may still be loading its model."""
_MIN_COMPUTING_PERCENT = 50.0
"""Mean SM utilization from which it computes rather than loads."""
_MIN_SAMPLES = 8
_MIN_GROWTH_SHARE = 0.005
"""Share of the total memory, over the samples."""
_MIN_GROWTH_TO_SCATTER = 4.0
"""Growth over the samples relative to their scatter around the line: less is noise."""
_WINDOW_PARTS = 4
"""Memory must grow in each of so many parts: one step is not a trend."""
_NEARLY_FULL_SHARE = 0.95
_FREE_AGAIN_SHARE = 0.90

Samples = list[tuple[float, float]]


def growth_rate(samples: Samples, total: float) -> float | None:
    """Bytes per second by which memory grows steadily; None if it does not, or noise is as large.

    A least-squares line through the samples (seconds, bytes). Its rise must exceed the scatter, and memory must rise
    in every part, including the last tenth: a start-up that levels off is not a leak. If the last third is slower,
    its rate counts.
    """
    if len(samples) < _MIN_SAMPLES or samples[-1][1] - samples[0][1] < _MIN_GROWTH_SHARE * total / 2:
        return None
    begun = samples[0][0]
    times = [at - begun for at, _ in samples]
    values = [value for _, value in samples]
    count, duration = len(samples), times[-1]
    mean_time, mean = sum(times) / count, sum(values) / count
    spread = sum((time - mean_time) ** 2 for time in times)
    offsets = [(time - mean_time, value - mean) for time, value in zip(times, values, strict=True)]
    slope = sum(time * value for time, value in offsets) / spread
    growth = slope * duration
    if growth < _MIN_GROWTH_SHARE * total:
        return None
    squared_errors = sum((value - slope * time) ** 2 for time, value in offsets)
    if growth < _MIN_GROWTH_TO_SCATTER * (squared_errors / count) ** 0.5:
        return None
    part_ends = [round(part * (count - 1) / _WINDOW_PARTS) for part in range(_WINDOW_PARTS + 1)]
    if min(values[later] - values[earlier] for earlier, later in pairwise(part_ends)) <= growth / _WINDOW_PARTS / 4:
        return None
    third, tenth = count - 1 - count // 3, count - 1 - max(count // 10, 2)
    if values[-1] <= values[tenth]:
        return None
    return min(slope, (values[-1] - values[third]) / (times[-1] - times[third]))


def rate_and_time_to_full(samples: Samples, total: float) -> tuple[float, float] | None:
    """Bytes per second, and seconds until ``total`` is reached; None unless memory grows steadily."""
    if len(samples) < 2 or not _MIN_USED_SHARE * total <= samples[-1][1] < _NEARLY_FULL_SHARE * total:
        return None
    seconds_covered = samples[-1][0] - samples[0][0]
    rate = growth_rate(samples, total) if seconds_covered >= _SHORT_WINDOW_SECONDS else None
    if rate is None or rate <= 0:
        return None
    seconds = (total - samples[-1][1]) / rate
    limit = _WARNING_SECONDS if seconds_covered >= MEMORY_WINDOW_SECONDS else _URGENT_SECONDS
    return (rate, seconds) if seconds <= limit else None


def _largest_holder(context: SampleContext, uuid: str) -> Process | None:
    return max(context.processes_on(uuid), key=lambda row: row.number("gpu_memory_bytes") or 0, default=None)


def _is_loading(context: SampleContext, uuid: str) -> bool:
    holder = _largest_holder(context, uuid)
    age = holder.run_seconds(context.at) if holder is not None else None
    if holder is None or age is None or age >= _LOADING_SECONDS:
        return False
    series = context.buckets_of(holder)
    return series is None or (series.mean_utilization or 0.0) < _MIN_COMPUTING_PERCENT


@condition
class MemoryFilling(Condition):
    """At this rate the device is full within ten minutes."""

    name = "memory-filling"
    causes = ("memory.growing",)
    looks_for = "memory that grows until it is full"
    needed_metrics = ("memory.used_bytes", "memory.total_bytes")
    report_after_seconds = 0.0  # the trend already needs many samples
    end_after_seconds = 30.0

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        for uuid, device in context.devices.items():
            total, samples = device.number("memory.total_bytes"), context.history.memory_used.get(uuid)
            if device.unified_memory:
                continue  # the host's memory, which any program fills
            if not total or not samples:
                yield Sign(cause=self.causes[0], device=device, variant="filling", holds=None)
                continue
            if samples[-1][1] <= samples[0][1]:
                continue
            filling = rate_and_time_to_full(list(samples), total)
            if filling is not None and not _is_loading(context, uuid):
                numbers: dict[str, float | None] = {"rate": filling[0], "seconds": filling[1], "used": samples[-1][1]}
                yield Sign(cause=self.causes[0], device=device, variant="filling", numbers=numbers)

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """Names the largest holder, which need not be the one that grows."""
        device = occurrence.device
        rate, left, used = (occurrence.statistics[name] for name in ("rate", "seconds", "used"))
        holder = _largest_holder(context, device.uuid)
        return self.make_finding(
            occurrence,
            "warning",
            "likely",
            title=f"GPU {device.index} memory is filling up: full in about {steady_duration(left.last)} at this rate",
            evidence=(
                f"{size(used.last)} of {size(device.number('memory.total_bytes'))} used",
                f"it grows by {size(rate.last * 60)} per minute; {occurrence.time_text(context.at)}",
                f"{label_in_sentence(holder)} holds the most: {memory(holder.number('gpu_memory_bytes'))}"
                if holder is not None
                else "",
            ),
            action="Look for tensors kept alive between steps (lists of losses, growing shapes).",
            pid=holder.pid if holder is not None else None,
        )

    def end_text(self, occurrence: Occurrence, finding: Finding, context: SampleContext) -> str:
        return f"GPU {occurrence.device.index} memory no longer grows ({occurrence.duration_text})"


@condition
class MemoryNearlyFull(Condition):
    """Only an event, without a cause: it is normal, as TensorFlow allocates nearly all free memory at its start."""

    name = "memory-full"
    causes = ()
    forget_after_seconds = float("inf")

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """Unknown between nearly full and free again, so that it stays as it was."""
        for device in context.devices.values():
            if device.unified_memory:
                continue
            used, total = device.number("memory.used_bytes"), device.number("memory.total_bytes")
            share = used / total if used is not None and total else None
            if share is None or share >= _FREE_AGAIN_SHARE:
                full = share is not None and share >= _NEARLY_FULL_SHARE
                yield Sign(cause="", device=device, variant="full", holds=True if full else None)

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """Only its title is used, for the event."""
        device = occurrence.device
        used, total = (size(device.number(f"memory.{name}_bytes")) for name in ("used", "total"))
        title = f"GPU {device.index} memory is nearly full: {used} of {total}"
        return self.make_finding(occurrence, "info", title=title)

    def is_listed(self, occurrence: Occurrence, context: SampleContext) -> bool:
        return False

    def end_text(self, occurrence: Occurrence, finding: Finding, context: SampleContext) -> str:
        return f"GPU {occurrence.device.index} memory is no longer full ({occurrence.duration_text})"
