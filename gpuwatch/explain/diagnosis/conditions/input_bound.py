"""A GPU starved by the host: by its input, or by the program that launches its kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuwatch.core.formatting.durations import steady_duration
from gpuwatch.core.formatting.sentences import gpu_list_text
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.diagnosis.conditions.condition import Condition, Occurrence, Sign, condition
from gpuwatch.explain.diagnosis.conditions.sample_context import (
    BUCKET_SECONDS,
    MAX_RESTING_PERCENT,
    Bucket,
    ProcessBuckets,
    SampleContext,
    mean_of,
)
from gpuwatch.machine.history.process_labels import command_line, label_in_sentence

MAX_STARVED_PERCENT = 60.0
"""Mean utilization in percent up to which a device that waits for its input does so much of the time."""
_WINDOW_BUCKETS = 9
"""Buckets judged together: 90 seconds."""
_MIN_BUSY_CPU_PERCENT = 90.0
"""Percent of one core from which the host is busy for this process."""
_MIN_DISK_WAIT_SHARE = 0.3
"""Share of samples in which the process waited for a disk."""
_WARM_UP_SECONDS = 120.0
"""Seconds after its first kernels in which a process compiles, tunes and fills its buffers."""
_FIRST_SEEN_SECONDS = 30.0
"""An old process that computes within so many seconds after it was first seen was at work before."""
_FASTER_INPUT = {
    "tensorflow": "Feed it faster: map(f, num_parallel_calls=tf.data.AUTOTUNE), cache(), prefetch(tf.data.AUTOTUNE).",
    "torch": "Feed it faster: DataLoader(num_workers=N, pin_memory=True, persistent_workers=True) with N up to"
    " the number of CPU cores; if they are already busy, do less work per example, or prepare the data in advance.",
}


def faster_input_advice(framework: str) -> str:
    """What to do about a GPU that waits for its input, by the framework's name, which may be empty."""
    return _FASTER_INPUT.get(framework, "Prepare the input in more parallel workers, ahead of the step.")


def _is_settled(process: ProcessBuckets, at: float) -> bool:
    """Whether import, compilation and warm-up are over."""
    if process.active_since is None:
        return False
    if process.was_old and process.active_since - process.first_seen <= _FIRST_SEEN_SECONDS:
        return True
    return at - process.active_since >= _WARM_UP_SECONDS + _WINDOW_BUCKETS * BUCKET_SECONDS


def starvation_numbers(buckets: Sequence[Bucket]) -> dict[str, float | None] | None:
    """The numbers of a process whose GPU waits for the host; None if it does not, or too little is known.

    Every bucket must show the GPU at work: an evaluation on the CPU, a checkpoint, a compilation or the end of a
    training is a single pause, which proves nothing.
    """
    utilization = [bucket.utilization for bucket in buckets]
    mean = mean_of(utilization)
    if mean is None or mean > MAX_STARVED_PERCENT:
        return None
    if any(part.count < 2 or part.maximum < MAX_RESTING_PERCENT for part in utilization):
        return None
    cpu = mean_of(bucket.cpu for bucket in buckets)
    disk = sum(bucket.disk_wait_samples for bucket in buckets) / sum(part.count for part in utilization)
    if (cpu is None or cpu < _MIN_BUSY_CPU_PERCENT) and disk < _MIN_DISK_WAIT_SHARE:
        return None
    return {
        "busy": mean,
        "least": min(part.minimum for part in utilization),
        "most": max(part.maximum for part in utilization),
        "rises": float(sum(bucket.rises for bucket in buckets)),
        "cpu": cpu,
        "disk": disk * 100,
    }


@condition
class InputBound(Condition):
    """Low or sawtooth utilization while the process keeps a core busy or waits for a disk."""

    name = "input-bound"
    causes = ("input.bound",)
    judges_processes = True
    looks_for = "GPUs starved for input"
    needed_metrics = ("utilization.gpu_percent",)
    report_after_seconds = 30.0
    end_after_seconds = 60.0

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        for rows in context.rows_of_process.values():
            process = rows[0]
            buckets = context.buckets_of(process)
            if buckets is None or process.type == "G" or not _is_settled(buckets, context.at):
                continue
            if (numbers := starvation_numbers(buckets.complete(_WINDOW_BUCKETS))) is not None:
                yield Sign(cause="input.bound", process=process, numbers=numbers)

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """Inferred, so ``likely``: a program that launches very small kernels looks the same from outside."""
        process = occurrence.process
        low, high, rises = (occurrence.statistics.get(name) for name in ("least", "most", "rises"))
        cpu, disk = occurrence.statistics.get("cpu"), occurrence.statistics.get("disk")
        framework = (process.framework or "").partition(" ")[0]
        teeth = ""
        if rises is not None and low is not None and high is not None and rises.mean >= _WINDOW_BUCKETS / 2:
            every = steady_duration(_WINDOW_BUCKETS * BUCKET_SECONDS / rises.mean)
            teeth = f"a sawtooth between {low.minimum:.0f} and {high.maximum:.0f} %: from idle to busy every {every}"
        rows = context.rows_of_process.get((process.pid, process.create_time), [])
        indices = {row.device_index for row in rows if row.device_index is not None}
        are = "are" if len(indices) > 1 else "is"
        return self.make_finding(
            occurrence,
            "warning",
            "likely",
            title=f"{gpu_list_text(indices)} {are} starved for input by {label_in_sentence(process)}",
            evidence=(
                f"utilization {occurrence.mean_text('busy', '%')} on average {occurrence.time_text(context.at)}",
                teeth,
                f"the process and its workers use {cpu.mean:.0f} % of a CPU core" if cpu is not None else "",
                f"it waited for a disk in {disk.mean:.0f} % of the samples"
                if disk is not None and disk.mean >= 5
                else "",
                f"framework: {printable(process.framework or '')}",
                command_line(process),
            ),
            action=faster_input_advice(framework),
            device_uuid=process.device_uuid,
        )
