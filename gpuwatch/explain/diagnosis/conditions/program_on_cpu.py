"""A program with a GPU framework that computes on the CPU while GPUs are free, and why, as seen from outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gpuwatch.core.formatting.sentences import gpu_list_text
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.process_activity import MAX_IDLE_PERCENT
from gpuwatch.core.model.snapshot import CPU_BUILD, Device, Process, Snapshot
from gpuwatch.core.model.visible_devices import MIG_PREFIX, visible_devices
from gpuwatch.core.safe_text import printable, shorten
from gpuwatch.explain.diagnosis.conditions.condition import Condition, Occurrence, Sign, condition
from gpuwatch.explain.diagnosis.conditions.sample_context import SampleContext
from gpuwatch.machine.history.process_labels import command_line, label_in_sentence
from gpuwatch.machine.sources.procfs import ELSEWHERE
from gpuwatch.sim.environment import ENV_STATE

_MIN_PROGRAM_BYTES = 100 << 20
"""Bytes of memory without an owner that may be a whole program's."""
_ENVIRONMENT = "environment"
"""Word in the note of a process whose environment may not be read."""
_NO_GPU_VALUES = ("none", "void", "")
_ACTIONS = {
    "visibility.hidden": "If not intended: unset CUDA_VISIBLE_DEVICES and restart the program.",
    "visibility.bad-ordinal": "Set CUDA_VISIBLE_DEVICES to GPUs that exist (nvidia-smi -L) and restart the program.",
    "build.cpu-only": "Install the CUDA build of the framework in its environment.",
    "unknown": "Run gpuwatch doctor --python with this process's interpreter: it says what prevents it from using "
    "the GPUs.",
}
_MIN_COMPUTING_CPU_PERCENT = 30.0
"""Percent of one core from which a process computes."""
_FREE_SHARE = 0.1
"""Share of a device's memory up to which it counts as free."""


class CpuReason(NamedTuple):
    """The cause, and what shows it."""

    cause: str
    """A cause id; ``unknown`` if the evidence does not rule out the others."""
    evidence: tuple[str, ...]
    action: str


def cpu_reason(
    process: Process, devices: Sequence[Device], environment: Mapping[str, str] | None = None
) -> CpuReason | None:
    """Why a process that NVML lists on none of ``devices`` is on the CPU; None if it was given MIG instances.

    ``environment``: that of its start, if it was read.
    """
    value = process.cuda_visible_devices
    if value is not None and MIG_PREFIX in value:
        return None
    cause, evidence = "unknown", list[str]()
    seen = visible_devices(value, (environment or {}).get("CUDA_DEVICE_ORDER"), devices)
    if value is not None and not seen.map and not seen.why_unsure:
        shown = f"CUDA_VISIBLE_DEVICES={shorten(printable(value), 60)}"
        if seen.invalid is not None and not seen.hidden:
            cause = "visibility.bad-ordinal"
            evidence.append(f"{shown}: {shorten(printable(seen.invalid), 40)} is not a GPU here")
        else:
            cause = "visibility.hidden"
            evidence.append(f"{shown}: it sees no GPU")
    action = _ACTIONS[cause]
    framework = printable(process.framework or "")
    if CPU_BUILD in framework:
        action = _ACTIONS["build.cpu-only"] + (f" {action}" if evidence else "")
        cause = "build.cpu-only"
        evidence.insert(0, f"{framework} is a build without CUDA")
    if cause == "unknown":
        unclear = value is not None and seen.why_unsure
        why_unsure = f"CUDA_VISIBLE_DEVICES={shorten(printable(value or ''), 60)}: {seen.why_unsure}" if unclear else ""
        evidence = _circumstances(process, environment, why_unsure)
    return CpuReason(cause, tuple(evidence), action)


def _circumstances(process: Process, environment: Mapping[str, str] | None, why_unsure: str) -> list[str]:
    """Evidence if the cause is unknown; ``why_unsure``: why CUDA_VISIBLE_DEVICES does not show it."""
    lines = []
    if (given := (environment or {}).get("NVIDIA_VISIBLE_DEVICES", "all")) in _NO_GPU_VALUES:
        lines.append(f"NVIDIA_VISIBLE_DEVICES={given}: its container was started without GPUs")
    if process.cuda_loaded is False:
        lines.append(
            "it has not loaded libcuda: a build without CUDA, no driver library where it runs, or nothing requested a"
            " GPU"
        )
    elif process.cuda_loaded:
        lines.append("it has loaded libcuda: CUDA failed, the program chose the CPU, or it has not used a GPU yet")
    if why_unsure:
        lines.append(why_unsure)
    elif environment is None and process.cuda_visible_devices is None and _ENVIRONMENT in process.note:
        lines.append(f"its environment cannot be read: {printable(process.note)}")
    elif environment is None:
        lines.append("CUDA_VISIBLE_DEVICES does not hide the GPUs from it")
    elif not lines or process.cuda_loaded:
        lines.append("nothing in its environment prevents it from using the GPUs")
    return lines


def why_maybe_on_gpu(process: Process, snapshot: Snapshot) -> str:
    """Why a process that NVML lists on no GPU may still use one; empty if it cannot.

    In a container, NVML lists pids of the host's PID namespace, or none at all.
    """
    if process.cuda_loaded is False:
        return ""
    elsewhere = sum(row.note.startswith(ELSEWHERE) for row in snapshot.processes)
    if elsewhere:
        single = elsewhere == 1
        return (
            f"NVML lists {elsewhere} process{'' if single else 'es'} by {'a pid' if single else 'pids'} of another PID"
            " namespace: this may be one of them"
        )
    unowned = any((device.number("memory.unexplained_bytes") or 0) >= _MIN_PROGRAM_BYTES for device in snapshot.devices)
    if unowned and snapshot.host.container:
        return "NVML lists no owner for part of the memory in this container: this process may hold it"
    return ""


def not_simulated(snapshot: Snapshot, environment: Mapping[str, str] | None) -> bool:
    """Whether the GPUs are simulated and the program was not started on them."""
    return snapshot.simulated and environment is not None and not environment.get(ENV_STATE)


def _free_gpus(context: SampleContext) -> list[Device]:
    found = []
    for device in (device for device in context.devices.values() if device.state == "ok"):
        used, total = device.number("memory.used_bytes"), device.number("memory.total_bytes")
        busy = device.number("utilization.gpu_percent")
        empty = used is not None and bool(total) and used <= _FREE_SHARE * (total or 0.0)
        if empty and busy is not None and busy <= MAX_IDLE_PERCENT:
            found.append(device)
    return found


@condition
class CpuWithFreeGpu(Condition):
    """It keeps a core busy, has a GPU framework loaded, uses no GPU, and at least one is free."""

    name = "cpu-with-free-gpu"
    causes = ("visibility.hidden", "visibility.bad-ordinal", "build.cpu-only", "unknown")
    judges_processes = True
    looks_for = "programs with a GPU framework that compute on the CPU"
    report_after_seconds = 60.0
    end_after_seconds = 30.0

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """One per process. GPUs may be hidden on purpose; that only lowers the severity."""
        free = _free_gpus(context) if context.snapshot.bystanders else []
        if not free:
            return
        for process in context.snapshot.bystanders:
            cpu = process.number("cpu_percent")
            if process.framework is None or cpu is None or cpu < _MIN_COMPUTING_CPU_PERCENT:
                continue
            found = cpu_reason(process, context.snapshot.devices)
            if found is None or (found.cause == "unknown" and why_maybe_on_gpu(process, context.snapshot)):
                continue
            numbers: dict[str, float | None] = {"cpu": cpu, "free": len(free)}
            yield Sign(cause=found.cause, process=process, variant="; ".join(found.evidence), numbers=numbers)

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """Always ``likely``: what the program wants is not visible from outside."""
        process, cause = occurrence.process, occurrence.sign.cause
        reason = cpu_reason(process, context.snapshot.devices)
        free = [device.index for device in _free_gpus(context)]
        empty = (process.cuda_visible_devices or "").strip() in ("", "-1", "NoDevFiles")
        return self.make_finding(
            occurrence,
            "info" if cause == "unknown" or (cause == "visibility.hidden" and empty) else "warning",
            "likely",
            title=f"{label_in_sentence(process)} computes on the CPU with {printable(process.framework or '')} while"
            " GPUs are free",
            evidence=(
                f"{occurrence.mean_text('cpu', '%')} of a CPU core {occurrence.time_text(context.at)}; it uses no GPU",
                occurrence.sign.variant,
                f"free: {gpu_list_text(free)}" if free else "",
                command_line(process),
            ),
            action=reason.action if reason is not None else "",
        )
