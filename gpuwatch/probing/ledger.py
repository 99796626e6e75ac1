"""Who holds the memory of each device while a probe runs, from NVML's samples.

Every number is one owner's: what the process holds, what others hold, what the driver keeps. None is
derived by adding what different sources say; what NVML's own numbers leave open is "unexplained".
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from gpuwatch.model.run import DeviceMemory
from gpuwatch.model.snapshot import Device, Snapshot
from gpuwatch.sim.machine import context_bytes


class Ledger:
    """Takes snapshots as they come; keeps the fullest one of each device that the process uses."""

    def __init__(self, before: Snapshot | None) -> None:
        """``before``: the machine before the launch."""
        self._before = before
        self._devices: dict[str, DeviceMemory] = {}

    def take(self, snapshot: Snapshot, pids: Collection[int]) -> None:
        """One sample; ``pids`` are the processes of the run."""
        mine: dict[str, float | None] = {}
        for process in snapshot.processes:
            if process.pid in pids and process.device_uuid:
                held = process.number("gpu_memory_bytes")
                before = mine.get(process.device_uuid, 0.0)
                mine[process.device_uuid] = None if held is None or before is None else before + held
        for device in snapshot.devices:
            known = self._devices.get(device.uuid)
            others = _others(snapshot, device, pids)
            if known is not None and others is not None:
                peak = max(others, known.others_peak_bytes or 0)
                known = self._devices[device.uuid] = msgspec.structs.replace(known, others_peak_bytes=peak)
            if device.uuid in mine:
                held = mine[device.uuid]
                entry = self._entry(device, None if held is None else int(held), others)
                if known is None or _fuller(entry, known):
                    peak_so_far = known.others_peak_bytes if known is not None else others
                    self._devices[device.uuid] = msgspec.structs.replace(entry, others_peak_bytes=peak_so_far)

    def _entry(self, device: Device, held: int | None, others: int | None) -> DeviceMemory:
        before = self._before.device(device.uuid) if self._before is not None else None
        return DeviceMemory(
            uuid=device.uuid,
            index=device.index,
            total_bytes=_bytes(device, "memory.total_bytes"),
            before_bytes=None if before is None else _bytes(before, "memory.used_bytes"),
            used_bytes=_bytes(device, "memory.used_bytes"),
            process_bytes=held,
            others_bytes=others,
            unexplained_bytes=_bytes(device, "memory.unexplained_bytes"),
            driver_reserved_bytes=_bytes(device, "memory.reserved_bytes"),
            others_before_bytes=None if self._before is None else _others(self._before, device, ()),
        )

    def result(self, *, context: bool) -> tuple[DeviceMemory, ...]:
        """All devices that the process used. ``context``: they are simulated ones with CUDA contexts."""
        entries = sorted(self._devices.values(), key=lambda entry: entry.index)
        if context:
            entries = [
                msgspec.structs.replace(entry, context_bytes=context_bytes(entry.total_bytes))
                if entry.total_bytes is not None
                else entry
                for entry in entries
            ]
        return tuple(entries)


def _others(snapshot: Snapshot, device: Device, pids: Collection[int]) -> int | None:
    """The sum of what NVML says of other processes; None when it keeps one of them to itself."""
    held = [
        process.number("gpu_memory_bytes")
        for process in snapshot.processes
        if process.device_uuid == device.uuid and process.pid not in pids
    ]
    known = [amount for amount in held if amount is not None]
    return int(sum(known)) if len(known) == len(held) else None


def _fuller(one: DeviceMemory, other: DeviceMemory) -> bool:
    return (one.process_bytes or 0, one.used_bytes or 0) >= (other.process_bytes or 0, other.used_bytes or 0)


def _bytes(device: Device, metric: str) -> int | None:
    value = device.number(metric)
    return None if value is None else int(value)
