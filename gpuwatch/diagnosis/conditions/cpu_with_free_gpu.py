"""A program with a GPU framework that computes on the CPU while GPUs are free."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.diagnosis.conditions.condition_registry import Condition, condition
from gpuwatch.diagnosis.conditions.duration_text import lasted, mean
from gpuwatch.diagnosis.conditions.hysteresis import Occurrence, Sign
from gpuwatch.diagnosis.conditions.sample_context import SampleContext
from gpuwatch.diagnosis.rules.phrasing import IDLE, command, who
from gpuwatch.formatting.text import printable, shorten
from gpuwatch.model.findings import Finding, Severity
from gpuwatch.model.snapshot import Device, Process
from gpuwatch.model.visibility import MIG_PREFIX, visible_devices

_CORE = 30.0
"""Percent of one core from which a process computes."""
_FREE_SHARE = 0.1
"""Share of a device's memory up to which it counts as free."""
_CPU_BUILD = "+cpu"


def _free(context: SampleContext) -> list[Device]:
    found = []
    for device in context.devices.values():
        used, total = device.number("memory.used_bytes"), device.number("memory.total_bytes")
        busy = device.number("utilization.gpu_percent")
        if device.state != "ok" or used is None or not total or busy is None:
            continue
        if busy <= IDLE and used <= _FREE_SHARE * total:
            found.append(device)
    return found


def cause_of(process: Process, devices: tuple[Device, ...]) -> tuple[str, str] | None:
    """Cause id, and the evidence for it; None if the process was given MIG instances."""
    value = process.cuda_visible_devices
    if value is not None and MIG_PREFIX in value:
        return None
    seen = visible_devices(value, None, devices)
    if value is not None and not seen.map and not seen.unsure:
        shown = f"CUDA_VISIBLE_DEVICES={shorten(printable(value), 60)}"
        if seen.invalid is not None and not seen.hidden:
            return "visibility.bad-ordinal", f"{shown}: {shorten(printable(seen.invalid), 40)} is not a GPU here"
        return "visibility.hidden", f"{shown}: it sees no GPU"
    framework = printable(process.framework or "")
    if _CPU_BUILD in framework:
        return "build.cpu-only", f"{framework} is a build without CUDA"
    if process.cuda_loaded is False:
        return "unknown", "it has not loaded libcuda: a build without CUDA, or nothing requested a GPU"
    return "unknown", "nothing in its environment keeps it from the GPUs"


_ACTIONS = {
    "visibility.hidden": "If not intended: unset CUDA_VISIBLE_DEVICES and restart the program.",
    "visibility.bad-ordinal": "Set CUDA_VISIBLE_DEVICES to GPUs that exist (nvidia-smi -L) and restart the program.",
    "build.cpu-only": "Install the CUDA build of the framework in its environment.",
    "unknown": "Run gpuwatch doctor --python with this process's interpreter: it says what keeps it from the GPUs.",
}


@condition
class CpuWithFreeGpu(Condition):
    """It keeps a core busy, has a GPU framework loaded, uses no GPU, and at least one is free."""

    name = "cpu-with-free-gpu"
    causes = ("visibility.hidden", "visibility.bad-ordinal", "build.cpu-only", "unknown")
    looks_for = "programs with a GPU framework that compute on the CPU"
    appears = 60.0
    leaves = 30.0

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """One per process. GPUs may be hidden on purpose; that only lowers the severity."""
        free = _free(context) if context.snapshot.bystanders else []
        if not free:
            return
        for process in context.snapshot.bystanders:
            cpu = process.number("cpu_percent")
            if process.framework is None or cpu is None or cpu < _CORE:
                continue
            found = cause_of(process, context.snapshot.devices)
            if found is not None:
                yield Sign(cause=found[0], process=process, about=found[1], numbers={"cpu": cpu, "free": len(free)})

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """Always ``likely``: what the program wants is not visible from outside."""
        process, cause = occurrence.process, occurrence.sign.cause
        free = ", ".join(str(device.index) for device in _free(context))
        empty = (process.cuda_visible_devices or "").strip() in ("", "-1", "NoDevFiles")
        severity: Severity = "warning"
        if cause == "unknown" or (cause == "visibility.hidden" and empty):
            severity = "info"
        return self.report(
            occurrence,
            severity,
            "likely",
            title=f"{who(process)} computes on the CPU with {printable(process.framework or '')} while GPUs are free",
            evidence=(
                f"{mean(occurrence, 'cpu', '%')} of a CPU core {lasted(occurrence, context.at)}; it uses no GPU",
                occurrence.sign.about,
                f"free: GPU {free}" if free else "",
                command(process),
            ),
            action=_ACTIONS[cause],
        )
