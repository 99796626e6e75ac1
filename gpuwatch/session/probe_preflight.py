"""The GPUs that a batch of probes will use, and the programs on them: shown before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuwatch.core.model.process_activity import MIN_IN_USE_PERCENT
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.experiment.probing.probe_scripts import ProbeScript

_SET_VISIBLE_IN_CODE = frozenset({"visible-late"})
"""Configurations that set CUDA_VISIBLE_DEVICES to a GPU in their own code."""


@dataclass(frozen=True, slots=True)
class Preflight:
    """A batch of probes before its start."""

    configs: tuple[str, ...]
    devices: tuple[Device, ...]
    """GPUs the probes can use; empty if there are none."""
    busy_devices: tuple[Device, ...]
    """Busy GPUs that are left alone because others are idle."""
    compute_processes: tuple[Process, ...]
    """Compute processes on these GPUs, largest first."""
    visible: tuple[str, ...]
    """UUIDs to make visible to the probes; empty: all."""
    sets_visible_itself: tuple[str, ...]
    """Configurations that set CUDA_VISIBLE_DEVICES themselves and ignore ``visible``."""

    @property
    def held_bytes(self) -> float | None:
        """GPU memory of the tenants, in bytes; None if it is unknown for one of them."""
        amounts = [process.number("gpu_memory_bytes") for process in self.compute_processes]
        known = [amount for amount in amounts if amount is not None]
        return sum(known) if len(known) == len(amounts) else None


def plan_preflight(scripts: Sequence[ProbeScript], snapshot: Snapshot | None, gpu: str) -> Preflight:
    """``gpu``: UUID of the only GPU to use; empty prefers idle ones."""
    devices = tuple(device for device in snapshot.devices if device.state == "ok") if snapshot is not None else ()
    processes = (
        [process for process in snapshot.processes if process.type != "G" and process.device_uuid]
        if snapshot is not None
        else []
    )
    busy_devices: tuple[Device, ...] = ()
    visible: tuple[str, ...] = (gpu,) if gpu else ()
    set_visible_themselves = tuple(
        script.name
        for script in scripts
        if script.name in _SET_VISIBLE_IN_CODE
        or not script.environment.get("CUDA_VISIBLE_DEVICES", "-1").startswith("-")
    )
    if gpu and not set_visible_themselves:
        devices = tuple(device for device in devices if device.uuid == gpu)
    elif not set_visible_themselves:
        used_uuids = {process.device_uuid for process in processes}
        used_uuids |= {
            device.uuid for device in devices if (device.number("utilization.gpu_percent") or 0.0) >= MIN_IN_USE_PERCENT
        }
        idle = tuple(device for device in devices if device.uuid not in used_uuids)
        gpus_needed = max((script.gpus for script in scripts), default=0)
        if idle and len(idle) >= min(gpus_needed, len(devices)):
            busy_devices = tuple(device for device in devices if device not in idle)
            devices = idle
            visible = tuple(device.uuid for device in idle) if busy_devices else ()
    device_uuids = {device.uuid for device in devices}
    processes = [process for process in processes if process.device_uuid in device_uuids]
    processes.sort(key=lambda process: -(process.number("gpu_memory_bytes") or 0.0))
    return Preflight(
        tuple(script.name for script in scripts),
        devices,
        busy_devices,
        tuple(processes),
        visible,
        set_visible_themselves,
    )
