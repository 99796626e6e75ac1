"""How GPUs are shared: MIG instances, compute modes, and processes of other users or containers."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.findings import Certainty, Finding, Severity
from gpuwatch.core.model.snapshot import Process, Snapshot
from gpuwatch.core.model.visible_devices import MIG_PREFIX
from gpuwatch.explain.diagnosis.evidence import NO_LOG, Evidence
from gpuwatch.explain.diagnosis.rule_registry import finding, info_finding, likely_info, rule
from gpuwatch.machine.sources.procfs import ELSEWHERE, HIDDEN


@rule("mig.misuse")
def mig_selection(evidence: Evidence) -> Iterator[Finding]:
    """A process can use one MIG instance, chosen by UUID; numbers choose whole GPUs."""
    value = evidence.visible_devices
    value = value if value is not None else evidence.log.hiding_visible_devices
    if value is None:
        return
    entries = [entry.strip() for entry in value.split(",") if entry.strip()]
    mig_entries = [entry for entry in entries if entry.startswith(MIG_PREFIX)]
    has_program = evidence.run is not None or evidence.log is not NO_LOG
    severity: Severity = "error" if has_program and not evidence.gpu_usable else "warning"
    devices = evidence.gpus
    mig_gpus = {str(device.index): device for device in devices if device.has_mig}
    setting = f"CUDA_VISIBLE_DEVICES={value}"
    certainty: Certainty = "fact" if len(entries) > 1 else "likely"
    no_device = evidence.log.kernel_module_version is not None and "driver.cuinit" in evidence.log.topics
    title, lines = "", [setting]
    if len(mig_entries) > 1:
        title = f"{len(mig_entries)} MIG instances are listed, but CUDA gives a process only the first"
        lines.append(f"never used: {', '.join(mig_entries[1:])}")
        action = "Start one process per MIG instance, each with its UUID in CUDA_VISIBLE_DEVICES."
    elif mig_entries and len(entries) > 1:
        title = "MIG instances and whole GPUs are listed together, which CUDA does not support"
        action = "List one MIG instance, or whole GPUs without MIG."
    elif mig_entries and devices and not any(device.has_mig for device in devices):
        title = "A MIG instance is requested, but no GPU in this machine has MIG enabled"
        action = "Name a GPU by its UUID (nvidia-smi -L), or enable MIG and create the instance."
    elif mig_entries and not devices and not evidence.gpu_usable and no_device:
        title = "A MIG instance is requested, but CUDA finds no device: no GPU has such an instance"
        lines += evidence.log.lines_of("driver.cuinit")
        action = "Use an existing instance (nvidia-smi -L), or the UUID of a GPU without MIG."
    if title:
        yield finding("mig.misuse", severity, certainty, title=title, evidence=lines, action=action)
    for entry in entries:
        if entry in mig_gpus:
            device = mig_gpus[entry]
            yield finding(
                "mig.misuse",
                severity if severity == "error" else "info",
                "likely",
                title=f"GPU {device.index} has MIG enabled: a number does not select any of its instances",
                evidence=[setting, f"{device.name} {device.uuid}: MIG mode enabled"],
                action="Set CUDA_VISIBLE_DEVICES to the UUID of one instance (MIG-…, from nvidia-smi -L).",
                device_uuid=device.uuid,
            )


@rule("container.pid-namespace", "memory.other-process", needs="snapshot")
def processes_not_visible(evidence: Evidence, snapshot: Snapshot) -> Iterator[Finding]:
    """Processes of other users and containers: NVML lists the whole machine, /proc only what this user may see here."""
    if evidence.run is not None:
        return
    for device in snapshot.devices:
        rows = [row for row in snapshot.processes if row.device_uuid == device.uuid]
        if hidden := [row for row in rows if row.note.startswith(HIDDEN)]:
            count, pids, memory_text = _process_texts(hidden)
            yield info_finding(
                "memory.other-process",
                title=f"GPU {device.index}: {count} of other users, hidden by /proc ({hidden[0].note.split()[-1]})",
                evidence=(f"pid {pids}: they exist (kill -0), but /proc hides them", memory_text),
                action="Run gpuwatch as root to see them, or join the group of /proc's mount option gid=.",
                device_uuid=device.uuid,
            )
        if elsewhere := [row for row in rows if row.note.startswith(ELSEWHERE)]:
            count, pids, memory_text = _process_texts(elsewhere)
            yield likely_info(
                "container.pid-namespace",
                title=f"GPU {device.index}: {count} not visible here, probably in another container",
                evidence=(f"pid {pids} of the host", memory_text),
                action="Check on the host (nvidia-smi, or gpuwatch there), or start this container with --pid=host.",
                device_uuid=device.uuid,
            )


def _process_texts(rows: list[Process]) -> tuple[str, str, str]:
    """How many processes, their pids, and their memory; empty if NVML does not report that."""
    rows = list({row.pid: row for row in rows}.values())
    held_bytes = sum(row.number("gpu_memory_bytes") or 0 for row in rows)
    return (
        count_text(len(rows), "process"),
        ", ".join(str(pid) for pid in sorted(row.pid for row in rows)[:8]),
        f"together {size(held_bytes)} of GPU memory, according to NVML" if held_bytes else "",
    )


@rule("mode.exclusive")
def compute_mode(evidence: Evidence) -> Iterator[Finding]:
    """A compute mode that turns a second program away."""
    for device in evidence.gpus:
        mode = device.get("mode.compute")
        if isinstance(mode, str) and mode.startswith(("exclusive", "prohibited")):
            yield finding(
                "mode.exclusive",
                "warning" if mode == "prohibited" else "info",
                title=f"GPU {device.index} is in compute mode {mode}",
                evidence=[f"NVML: compute mode {mode} on {device.uuid}"],
                action="nvidia-smi -c 0 sets the default mode, in which several programs may share the GPU.",
                device_uuid=device.uuid,
            )
