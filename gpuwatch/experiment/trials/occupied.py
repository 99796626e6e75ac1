"""GPUs that other programs use: nothing starts there unless the user says so."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gpuwatch.core.formatting.text import shorten
from gpuwatch.core.formatting.units import memory
from gpuwatch.core.model.snapshot import Process, Snapshot
from gpuwatch.core.model.visibility import visible_devices

_COMMAND = 60
_NAMED = 3


def occupied(machine: Snapshot | None, variables: Mapping[str, str]) -> str:
    """``GPU 0 is used by python serve.py (pid 12, alice, 12.1 GiB)``; empty if nobody is on the program's GPUs.

    ``variables``: what the program gets besides our environment. Graphics (a desktop) does not count.
    """
    if machine is None:
        return ""
    environment = {**os.environ, **variables}
    listed, order = environment.get("CUDA_VISIBLE_DEVICES"), environment.get("CUDA_DEVICE_ORDER")
    seen = visible_devices(listed, order, machine.devices)
    mine = {entry.uuid for entry in seen.map} if not seen.unsure else {device.uuid for device in machine.devices}
    tenants: dict[int, list[Process]] = {}
    for process in machine.processes:
        if process.type != "G" and process.device_uuid in mine:
            device = machine.device(process.device_uuid)
            tenants.setdefault(-1 if device is None else device.index, []).append(process)
    return "; ".join(f"GPU {index} is used by {_named(of)}" for index, of in sorted(tenants.items()))


def _named(processes: list[Process]) -> str:
    processes.sort(key=lambda process: -(process.number("gpu_memory_bytes") or 0))
    shown = [
        f"{shorten(process.command or process.name or 'a process', _COMMAND)}"
        f" ({', '.join(filter(None, (f'pid {process.pid}', process.user, _held(process))))})"
        for process in processes[:_NAMED]
    ]
    rest = len(processes) - _NAMED
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def _held(process: Process) -> str:
    amount = process.number("gpu_memory_bytes")
    return memory(amount) if amount is not None else ""
