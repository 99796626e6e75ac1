"""Why a program with a GPU framework may be on no GPU, as far as it can be seen from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpuwatch.core.formatting.text import printable, shorten
from gpuwatch.core.model.snapshot import CPU_BUILD, Device, Process, Snapshot
from gpuwatch.core.model.visibility import MIG_PREFIX, visible_devices
from gpuwatch.machine.sources.missing_process import ELSEWHERE
from gpuwatch.sim.sysfs import ENV_STATE

_NOTABLE = 100 << 20
"""Bytes of memory without an owner that may be a whole program's."""
_ENVIRONMENT = "environment"
"""In the note of a process whose environment may not be read."""
_NOT_GIVEN = ("none", "void", "")


class CpuReason(NamedTuple):
    """The cause, and what shows it."""

    cause: str
    """A cause id; ``unknown`` if the evidence does not rule out the others."""
    evidence: tuple[str, ...]
    action: str


_UNHIDE = "If not intended: unset CUDA_VISIBLE_DEVICES and restart the program."
_ACTIONS = {
    "visibility.hidden": _UNHIDE,
    "visibility.bad-ordinal": "Set CUDA_VISIBLE_DEVICES to GPUs that exist (nvidia-smi -L) and restart the program.",
    "build.cpu-only": "Install the CUDA build of the framework in its environment.",
    "unknown": "Run gpuwatch doctor --python with this process's interpreter: it says what keeps it from the GPUs.",
}


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
    if value is not None and not seen.map and not seen.unsure:
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
        listed = value is not None and seen.unsure
        unsure = f"CUDA_VISIBLE_DEVICES={shorten(printable(value or ''), 60)}: {seen.unsure}" if listed else ""
        evidence = _circumstances(process, environment, unsure)
    return CpuReason(cause, tuple(evidence), action)


def _circumstances(process: Process, environment: Mapping[str, str] | None, unsure: str) -> list[str]:
    """What is known where no cause is; ``unsure``: why its CUDA_VISIBLE_DEVICES tells nothing."""
    lines = []
    if environment is not None and environment.get("NVIDIA_VISIBLE_DEVICES", "all") in _NOT_GIVEN:
        lines.append(f"NVIDIA_VISIBLE_DEVICES={environment['NVIDIA_VISIBLE_DEVICES']}: its container was given no GPU")
    if process.cuda_loaded is False:
        lines.append(
            "it has not loaded libcuda: a build without CUDA, no driver library where it runs, or nothing requested a"
            " GPU"
        )
    elif process.cuda_loaded:
        lines.append("it has loaded libcuda: CUDA failed, the program chose the CPU, or it has not used a GPU yet")
    if unsure:
        lines.append(unsure)
    elif environment is None and process.cuda_visible_devices is None and _ENVIRONMENT in process.note:
        lines.append(f"its environment cannot be read: {printable(process.note)}")
    elif environment is None:
        lines.append("CUDA_VISIBLE_DEVICES does not hide the GPUs from it")
    elif not lines or process.cuda_loaded:
        lines.append("nothing in its environment keeps it from the GPUs")
    return lines


def may_be_on_gpu(process: Process, snapshot: Snapshot) -> str:
    """Why a process that NVML lists on no GPU may still use one; empty if it cannot.

    In a container, NVML lists pids of the host's PID namespace, or none at all.
    """
    if process.cuda_loaded is False:
        return ""
    elsewhere = sum(row.note.startswith(ELSEWHERE) for row in snapshot.processes)
    if elsewhere:
        item = elsewhere == 1
        return (
            f"NVML lists {elsewhere} process{'' if item else 'es'} by {'a pid' if item else 'pids'} of another PID"
            " namespace: this may be one of them"
        )
    hidden = any((device.number("memory.unexplained_bytes") or 0) >= _NOTABLE for device in snapshot.devices)
    if hidden and snapshot.host.container:
        return "NVML lists no owner for part of the memory in this container: this process may hold it"
    return ""


def not_simulated(snapshot: Snapshot, environment: Mapping[str, str] | None) -> bool:
    """Whether the GPUs are simulated and the program was not started on them."""
    return snapshot.simulated and environment is not None and not environment.get(ENV_STATE)
