"""How processes used GPUs: what samples show of each, and those that were in no sample, by the driver's accounting."""

from __future__ import annotations

import msgspec

from gpuwatch.core.model.process_activity import MAX_CLOCK_DIFFERENCE_SECONDS, AccountedProcess
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.machine.history.gone_gpus import forget_gone


class ObservedProcess(msgspec.Struct, kw_only=True):
    """Totals observed for a process on a device."""

    last: float
    """When it was last seen there, in seconds since the epoch."""
    memory_peak_bytes: float | None = None
    sm_percent_max: float | None = None
    sm_percent_seconds: float = 0.0
    """Percent times seconds, over :attr:`sm_seconds`."""
    sm_seconds: float = 0.0
    """Seconds for which its SM utilization is known."""
    held_seconds: float = 0.0
    """Seconds for which it was seen on the device, without gaps between samples."""

    def observe(self, row: Process, at: float, max_gap_seconds: float) -> None:
        """Adds the time since it was last seen, unless that exceeds ``max_gap_seconds``, with the row of its end."""
        seconds, self.last = at - self.last, at
        if not 0 < seconds <= max_gap_seconds:
            seconds = 0.0
        self.held_seconds += seconds
        held, used = row.readings.get("gpu_memory_bytes"), row.readings.get("sm_percent")
        if isinstance(held, (int, float)):
            self.memory_peak_bytes = held if self.memory_peak_bytes is None else max(self.memory_peak_bytes, held)
        if isinstance(used, (int, float)):
            self.sm_percent_max = used if self.sm_percent_max is None else max(self.sm_percent_max, used)
            self.sm_seconds += seconds
            self.sm_percent_seconds += used * seconds


_MAX_PROCESSES = 4096
"""Processes that are remembered."""


class UnsampledProcesses:
    """Follows samples in their order."""

    def __init__(self) -> None:
        self._accounted: dict[str, tuple[AccountedProcess, ...]] = {}
        """Accounted processes in the last sample, by device."""
        self._rows: tuple[Process, ...] = ()
        self._seen: dict[tuple[str | None, int], tuple[float | None, float]] = {}
        """The start of the last process of a pid on a device, and when it was last seen there."""

    def observe(self, snapshot: Snapshot) -> list[tuple[Device, AccountedProcess]]:
        """The processes that have ended since the last sample and were in none."""
        at = snapshot.taken_at.timestamp()
        before, self._rows = self._rows, snapshot.processes
        if before is not self._rows:
            for row in (*before, *self._rows):  # those that left were there until now
                self._seen.pop((row.device_uuid, row.pid), None)
                self._seen[row.device_uuid, row.pid] = (row.create_time, at)
            while len(self._seen) > _MAX_PROCESSES:
                del self._seen[next(iter(self._seen))]
        found = []
        for device in snapshot.devices:
            known = self._accounted.get(device.uuid)
            if device.accounted is known:
                continue
            self._accounted[device.uuid] = device.accounted
            if known is not None and device.accounted != known:
                new = [process for process in device.accounted if process not in known]
                found += [(device, process) for process in new if not self._was_seen(device.uuid, process)]
        forget_gone({device.uuid for device in snapshot.devices}, self._accounted)
        return found

    def _was_seen(self, uuid: str, process: AccountedProcess) -> bool:
        create_time, last = self._seen.get((uuid, process.pid), (None, float("-inf")))
        return process.may_be(process.pid, create_time) and process.started_at <= last + MAX_CLOCK_DIFFERENCE_SECONDS
