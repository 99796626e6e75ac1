"""GPU memory that is held and not used."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.formatting.secrets import mask_text
from gpuwatch.formatting.text import printable, shorten
from gpuwatch.formatting.units import size
from gpuwatch.model.findings import Finding
from gpuwatch.model.snapshot import Device, Process, Snapshot

_MAPPED_SHARE = 0.8
_USED_SHARE = 0.1
_HELD_SHARE = 0.2
_HELD_LEAST = 1 << 30
_IDLE_PERCENT = 1.0
_IDLE_SAMPLES = 30

GROWTH = "Set memory growth (tf.config.experimental.set_memory_growth or TF_FORCE_GPU_ALLOW_GROWTH=true), or a limit."


@rule("idle.memory-held")
def mapped_by_default(evidence: Evidence) -> Iterator[Finding]:
    """TensorFlow took nearly the whole device and used little of it."""
    run = evidence.run
    if run is None:
        return
    peak, held, total = run.memory.allocator_peak_bytes, run.memory.nvml_peak_bytes, run.memory.device_total_bytes
    limit = run.memory.allocator_limit_bytes or max((m.granted_bytes or 0 for m in run.device_map), default=0)
    if peak is None or held is None or not total or not limit:
        return
    # With growth the limit is the same and NVML shows little: only what is really held counts.
    if held >= _MAPPED_SHARE * total and peak <= _USED_SHARE * limit:
        yield finding(
            "idle.memory-held",
            "info",
            "fact",
            title=f"TensorFlow took {size(held)} of {size(total)} and used {size(peak)} at most",
            evidence=(
                f"allocator's limit {size(limit)}, its peak in use {size(peak)}",
                f"NVML: this process held {size(held)} of {size(total)}",
            ),
            action=GROWTH,
        )


@rule("idle.memory-held")
def process_holds_idle_device(evidence: Evidence) -> Iterator[Finding]:
    """A process holds much memory while its device does nothing."""
    snapshot = evidence.snapshot
    if snapshot is None or evidence.run is not None:
        return
    for device in snapshot.devices:
        total = device.number("memory.total_bytes")
        if not total or not _idle(evidence, device):
            continue
        for process in snapshot.processes:
            held = process.number("gpu_memory_bytes")
            if process.device_uuid != device.uuid or held is None:
                continue
            if held >= max(_HELD_LEAST, _HELD_SHARE * total) and _was_there(evidence, snapshot, process) is not False:
                yield _held(evidence, device, process, held, total)


def _idle(evidence: Evidence, device: Device) -> bool:
    """Idle now and, where a history is kept, all along it. Unknown utilisation is not idle."""
    now = device.number("utilization.gpu_percent")
    if now is None or now > _IDLE_PERCENT:
        return False
    if evidence.history is None:
        return True
    past = [value for value in evidence.history.series(device.uuid, "utilization.gpu_percent") if value is not None]
    return all(value <= _IDLE_PERCENT for value in past[-_IDLE_SAMPLES:])


def _was_there(evidence: Evidence, snapshot: Snapshot, process: Process) -> bool | None:
    """Whether the process lived through all samples that speak of idleness; None where its age is unknown.

    A training that has just begun holds its memory already, while the samples are those of before it.
    """
    if evidence.history is None:
        return None
    times = list(evidence.history.times)[-_IDLE_SAMPLES:]
    now = snapshot.taken_at.timestamp()
    age = process.number("run_seconds")
    if age is None:
        age = now - process.create_time if process.create_time is not None else None
    if age is None:
        return None
    return not times or age >= now - times[0]


def _held(evidence: Evidence, device: Device, process: Process, held: float, total: float) -> Finding:
    past = evidence.history.series(device.uuid, "utilization.gpu_percent") if evidence.history is not None else ()
    snapshot = evidence.snapshot
    long_enough = len(past) >= _IDLE_SAMPLES and snapshot is not None and bool(_was_there(evidence, snapshot, process))
    who = f"{process.user or 'unknown user'}'s {printable(process.name or 'process')} ({process.pid})"
    framework = (process.framework or "").lower()
    action = GROWTH if framework.startswith("tensorflow") else "Ask the owner whether the process is still needed."
    lines = [
        f"process {process.pid} holds {size(held)} of {size(total)}",
        f"GPU {device.index} utilization {device.number('utilization.gpu_percent'):.0f} %"
        + (f" in the last {min(len(past), _IDLE_SAMPLES)} samples" if long_enough else " in this sample"),
    ]
    if process.command:
        lines.append(shorten(mask_text(printable(process.command)), 120))
    return finding(
        "idle.memory-held",
        "warning" if long_enough else "info",
        "fact" if long_enough else "likely",
        title=f"{who} holds {size(held)} on idle GPU {device.index}",
        evidence=lines,
        action=action,
        device_uuid=device.uuid,
        pid=process.pid,
    )
