"""A program with a GPU framework that computes on the CPU while GPUs are free."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.formatting.text import printable
from gpuwatch.core.model.activity import IDLE
from gpuwatch.core.model.findings import Finding, Severity
from gpuwatch.core.model.snapshot import Device
from gpuwatch.explain.diagnosis.conditions.condition_registry import Condition, condition
from gpuwatch.explain.diagnosis.conditions.hysteresis import Occurrence, Sign
from gpuwatch.explain.diagnosis.conditions.program_on_cpu import cpu_reason, may_be_on_gpu
from gpuwatch.explain.diagnosis.conditions.sample_context import SampleContext
from gpuwatch.explain.diagnosis.rules.phrasing import command, who

_CORE = 30.0
"""Percent of one core from which a process computes."""
_FREE_SHARE = 0.1
"""Share of a device's memory up to which it counts as free."""


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


@condition
class CpuWithFreeGpu(Condition):
    """It keeps a core busy, has a GPU framework loaded, uses no GPU, and at least one is free."""

    name = "cpu-with-free-gpu"
    causes = ("visibility.hidden", "visibility.bad-ordinal", "build.cpu-only", "unknown")
    of_processes = True
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
            found = cpu_reason(process, context.snapshot.devices)
            if found is None or (found.cause == "unknown" and may_be_on_gpu(process, context.snapshot)):
                continue
            numbers: dict[str, float | None] = {"cpu": cpu, "free": len(free)}
            yield Sign(cause=found.cause, process=process, about="; ".join(found.evidence), numbers=numbers)

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """Always ``likely``: what the program wants is not visible from outside."""
        process, cause = occurrence.process, occurrence.sign.cause
        assert process is not None
        reason = cpu_reason(process, context.snapshot.devices)
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
                f"{occurrence.mean('cpu', '%')} of a CPU core {occurrence.lasted(context.at)}; it uses no GPU",
                occurrence.sign.about,
                f"free: GPU {free}" if free else "",
                command(process),
            ),
            action=reason.action if reason is not None else "",
        )
