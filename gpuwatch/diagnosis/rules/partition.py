"""Parts of a machine: MIG instances of a GPU, and processes of other containers."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.diagnosis.visible import INSTANCE, divided
from gpuwatch.formatting.units import size
from gpuwatch.model.findings import Finding, Severity

_ELSEWHERE = ("not in this PID namespace", "another PID namespace")


@rule("mig.misuse")
def instances(evidence: Evidence) -> Iterator[Finding]:
    """CUDA gives a process one MIG instance, named by its UUID; numbers name whole GPUs."""
    value = evidence.visible_devices
    if value is None and evidence.log is not None:
        value = evidence.log.hidden_by_environment
    if value is None:
        return
    entries = [entry.strip() for entry in value.split(",") if entry.strip()]
    named = [entry for entry in entries if entry.startswith(INSTANCE)]
    worked = evidence.run is not None or evidence.log is not None
    severity: Severity = "error" if worked and not evidence.gpu_usable else "warning"
    devices = evidence.snapshot.devices if evidence.snapshot is not None else ()
    parted = {str(device.index): device for device in devices if divided(device)}
    shown = f"CUDA_VISIBLE_DEVICES={value}"
    if len(named) > 1:
        yield finding(
            "mig.misuse",
            severity,
            "fact",
            title=f"{len(named)} MIG instances are listed, and CUDA gives a process the first one only",
            evidence=[shown, f"never used: {', '.join(named[1:])}"],
            action="Start one process per MIG instance, each with the UUID of its own in CUDA_VISIBLE_DEVICES.",
        )
    elif named and len(entries) > 1:
        yield finding(
            "mig.misuse",
            severity,
            "fact",
            title="MIG instances and whole GPUs are listed together, which CUDA does not support",
            evidence=[shown],
            action="List one MIG instance, or whole GPUs that are not divided.",
        )
    elif named and devices and not any(divided(device) for device in devices):
        yield finding(
            "mig.misuse",
            severity,
            "likely",
            title="A MIG instance is asked for, and no GPU of this machine is divided",
            evidence=[shown],
            action="Name a GPU by its UUID (nvidia-smi -L), or switch MIG on and create the instance.",
        )
    elif named and not devices and not evidence.gpu_usable and _no_device(evidence):
        yield finding(
            "mig.misuse",
            severity,
            "likely",
            title="A MIG instance is asked for, and CUDA finds no device: no GPU has such an instance",
            evidence=[shown, *(evidence.log.lines_of("driver.cuinit") if evidence.log is not None else ())],
            action="List the instances that exist (nvidia-smi -L), or name a GPU that is not divided by its UUID.",
        )
    for entry in entries:
        if entry in parted:
            device = parted[entry]
            yield finding(
                "mig.misuse",
                severity if severity == "error" else "info",
                "likely",
                title=f"GPU {device.index} is divided by MIG: a number addresses none of its instances",
                evidence=[shown, f"{device.name} {device.uuid}: MIG mode enabled"],
                action="Put the UUID of one instance into CUDA_VISIBLE_DEVICES (MIG-…, from nvidia-smi -L).",
                device_uuid=device.uuid,
            )


def _no_device(evidence: Evidence) -> bool:
    """Whether the driver's module is loaded and CUDA all the same finds no device, as a log tells it."""
    log = evidence.log
    return log is not None and log.kernel_driver is not None and "driver.cuinit" in log.topics


@rule("container.pid-namespace")
def processes_elsewhere(evidence: Evidence) -> Iterator[Finding]:
    """NVML lists processes of the whole machine; those of other containers have no entry in our /proc."""
    snapshot = evidence.snapshot
    if snapshot is None or evidence.run is not None:
        return
    for device in snapshot.devices:
        held = {
            process.pid: process.number("gpu_memory_bytes")
            for process in snapshot.processes
            if process.device_uuid == device.uuid and process.note.startswith(_ELSEWHERE)
        }
        amounts = [amount for amount in held.values() if amount]
        if not held:
            continue
        who = "1 process" if len(held) == 1 else f"{len(held)} processes"
        pids = ", ".join(str(pid) for pid in sorted(held)[:8])
        yield finding(
            "container.pid-namespace",
            "info",
            "likely",
            title=f"GPU {device.index}: {who} that cannot be seen from here, probably of another container",
            evidence=(
                f"pid {pids} of the host",
                *([f"together {size(sum(amounts))} of GPU memory, as NVML says"] if amounts else []),
            ),
            action="Look on the host (nvidia-smi, or gpuwatch there), or start this container with --pid=host.",
            device_uuid=device.uuid,
        )
