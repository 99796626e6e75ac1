"""Parts of a machine: MIG instances of a GPU, and processes of other containers."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.findings import Certainty, Finding, Severity
from gpuwatch.core.model.snapshot import Device, Snapshot
from gpuwatch.core.model.visible_devices import MIG_PREFIX, has_mig
from gpuwatch.explain.diagnosis.evidence import NO_LOG, Evidence
from gpuwatch.explain.diagnosis.rule_registry import finding, note_of, rule
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.machine.sources import missing_process

_HIDDEN = "hidden from this user"
_ELSEWHERE = (missing_process.ELSEWHERE, "not in this PID namespace", "another PID namespace")
"""Notes of processes in another PID namespace; the last two are those of older documents."""


@rule("mig.misuse")
def instances(evidence: Evidence) -> Iterator[Finding]:
    """A process can use one MIG instance, chosen by UUID; numbers choose whole GPUs."""
    value = evidence.visible_devices
    value = value if value is not None else evidence.log.hidden_by_environment
    if value is None:
        return
    entries = [entry.strip() for entry in value.split(",") if entry.strip()]
    named = [entry for entry in entries if entry.startswith(MIG_PREFIX)]
    worked = evidence.run is not None or evidence.log is not NO_LOG
    severity: Severity = "error" if worked and not evidence.gpu_usable else "warning"
    devices = evidence.gpus
    parted = {str(device.index): device for device in devices if has_mig(device)}
    shown = f"CUDA_VISIBLE_DEVICES={value}"
    certainty: Certainty = "fact" if len(entries) > 1 else "likely"
    title, lines = "", [shown]
    if len(named) > 1:
        title = f"{len(named)} MIG instances are listed, but CUDA gives a process only the first"
        lines.append(f"never used: {', '.join(named[1:])}")
        action = "Start one process per MIG instance, each with its UUID in CUDA_VISIBLE_DEVICES."
    elif named and len(entries) > 1:
        title = "MIG instances and whole GPUs are listed together, which CUDA does not support"
        action = "List one MIG instance, or whole GPUs without MIG."
    elif named and devices and not any(has_mig(device) for device in devices):
        title = "A MIG instance is requested, but no GPU in this machine has MIG enabled"
        action = "Name a GPU by its UUID (nvidia-smi -L), or enable MIG and create the instance."
    elif named and not devices and not evidence.gpu_usable and _no_device(evidence.log):
        title = "A MIG instance is requested, but CUDA finds no device: no GPU has such an instance"
        lines += evidence.log.lines_of("driver.cuinit")
        action = "Use an existing instance (nvidia-smi -L), or the UUID of a GPU without MIG."
    if title:
        yield finding("mig.misuse", severity, certainty, title=title, evidence=lines, action=action)
    for entry in entries:
        if entry in parted:
            device = parted[entry]
            yield finding(
                "mig.misuse",
                severity if severity == "error" else "info",
                "likely",
                title=f"GPU {device.index} has MIG enabled: a number does not select any of its instances",
                evidence=[shown, f"{device.name} {device.uuid}: MIG mode enabled"],
                action="Set CUDA_VISIBLE_DEVICES to the UUID of one instance (MIG-…, from nvidia-smi -L).",
                device_uuid=device.uuid,
            )


def _no_device(log: LogFacts) -> bool:
    """Whether the driver's module is loaded and CUDA still finds no device."""
    return log.kernel_driver is not None and "driver.cuinit" in log.topics


@rule("container.pid-namespace", "memory.other-process")
def processes_elsewhere(evidence: Evidence) -> Iterator[Finding]:
    """Processes of other containers: NVML lists the whole machine, /proc only this PID namespace."""
    snapshot = evidence.snapshot
    if snapshot is None or evidence.run is not None:
        return
    for device in snapshot.devices:
        held = {
            process.pid: process.number("gpu_memory_bytes")
            for process in snapshot.processes
            if process.device_uuid == device.uuid and process.note.startswith(_ELSEWHERE)
        }
        yield from _hidden_processes(snapshot, device)
        amounts = [amount for amount in held.values() if amount]
        if not held:
            continue
        who = "1 process" if len(held) == 1 else f"{len(held)} processes"
        pids = ", ".join(str(pid) for pid in sorted(held)[:8])
        yield note_of(
            "container.pid-namespace",
            certainty="likely",
            title=f"GPU {device.index}: {who} not visible here, probably in another container",
            evidence=(
                f"pid {pids} of the host",
                *([f"together {size(sum(amounts))} of GPU memory, according to NVML"] if amounts else []),
            ),
            action="Check on the host (nvidia-smi, or gpuwatch there), or start this container with --pid=host.",
            device_uuid=device.uuid,
        )


def _hidden_processes(snapshot: Snapshot, device: Device) -> Iterator[Finding]:
    """Processes of this PID namespace that /proc hides from this user."""
    rows = [
        process
        for process in snapshot.processes
        if process.device_uuid == device.uuid and process.note.startswith(_HIDDEN)
    ]
    if not rows:
        return
    amounts = [amount for row in rows if (amount := row.number("gpu_memory_bytes"))]
    who = "1 process" if len(rows) == 1 else f"{len(rows)} processes"
    option = rows[0].note.rpartition(" ")[2]
    yield note_of(
        "memory.other-process",
        title=f"GPU {device.index}: {who} of other users, hidden by /proc ({option})",
        evidence=(
            f"pid {', '.join(str(row.pid) for row in rows[:8])}: they exist (kill -0), but /proc hides them",
            *([f"together {size(sum(amounts))} of GPU memory, according to NVML"] if amounts else []),
        ),
        action="Run gpuwatch as root to see them, or join the group of /proc's mount option gid=.",
        device_uuid=device.uuid,
    )
