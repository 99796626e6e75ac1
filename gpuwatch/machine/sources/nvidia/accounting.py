"""The driver's accounting mode: use of the GPU by each process from start to end, also between two samples.

It is read where an administrator has switched it on (``nvidia-smi -am 1``), and never switched on here. The driver
keeps the latest processes (``nvmlDeviceGetAccountingBufferSize``, about 4000) by pid, running ones too; of a pid that
was used again it keeps the last. With MIG it keeps none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpuwatch.core.model.process_activity import AccountedProcess
from gpuwatch.machine.sources.nvidia.decode_answers import NOT_AVAILABLE
from gpuwatch.machine.sources.nvidia.nvml_devices import NvmlDevice

_PERMANENT_KEY = "accounting"
_MAX_PROCESSES = 32
"""Processes of a device that are kept: the latest ones."""
_MAX_PROCESSES_AT_ONCE = 64
"""Processes that are asked for at once."""


class Accounting:
    """Processes of each device that end from its first :meth:`update` on."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        self._ended: dict[str, dict[int, int]] = {}
        """By device: pids whose end is known, with when they began, in microseconds; 0 before we listened."""

    def update(self, device: NvmlDevice) -> None:
        """Reads the driver's list; sets ``device.accounted``. Called in the slow lane."""
        if _PERMANENT_KEY in device.permanent or device.handle is None or device.state != "ok":
            return
        lib = self._lib
        try:
            if not lib.nvmlDeviceGetAccountingMode(device.handle):
                self._ended.pop(device.uuid, None)
                return
            pids = set(lib.nvmlDeviceGetAccountingPids(device.handle))
        except lib.NVMLError as error:
            device.note_missing(lib, error.value, "nvmlDeviceGetAccountingMode", _PERMANENT_KEY)
            return
        running = {entry.pid for entry in device.listed_processes}
        ended = self._ended.get(device.uuid)
        if ended is None:
            self._ended[device.uuid] = dict.fromkeys(pids - running, 0)
            return
        ended = self._ended[device.uuid] = {pid: began for pid, began in ended.items() if pid in pids}
        self._query(device, ended, pids - ended.keys() - running)

    def note_exited(self, device: NvmlDevice, pids: Iterable[int]) -> None:
        """Asks at once about processes that have just left the list of running ones."""
        ended = self._ended.get(device.uuid)
        if ended is not None and device.state == "ok":
            self._query(device, ended, pids)

    def _query(self, device: NvmlDevice, ended: dict[int, int], pids: Iterable[int]) -> None:
        found = []
        for pid in sorted(pids)[:_MAX_PROCESSES_AT_ONCE]:
            try:
                stats = self._lib.nvmlDeviceGetAccountingStats(device.handle, pid)
            except self._lib.NVMLError:
                continue  # not in the list any more
            if stats.isRunning or ended.get(pid) == stats.startTime:
                continue
            ended[pid] = stats.startTime
            found.append(
                AccountedProcess(
                    pid=pid,
                    started_at=stats.startTime / 1e6,
                    used_seconds=stats.time / 1e3,
                    gpu_percent=_available(stats.gpuUtilization),
                    memory_percent=_available(stats.memoryUtilization),
                    peak_bytes=_available(stats.maxMemoryUsage),
                )
            )
        if found:
            device.accounted = (
                *device.accounted,
                *sorted(found, key=lambda process: process.started_at + process.used_seconds),
            )[-_MAX_PROCESSES:]


def _available(value: int | None) -> int | None:
    return None if value is None or value in NOT_AVAILABLE else int(value)
