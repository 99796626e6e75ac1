"""How processes used GPUs: what samples show of each, its life, and those that were in no sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from gpuwatch.core.model.snapshot import MAX_CLOCK_SKEW_SECONDS, AccountedProcess, Device, Process, Snapshot
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
        return process.may_be(process.pid, create_time) and process.started_at <= last + MAX_CLOCK_SKEW_SECONDS


Key = tuple[int, float, str]
"""Pid, start time (-1 if unknown) and UUID of the device."""


class ProcessLife(ObservedProcess, kw_only=True):
    """A process on a device, as far as it was recorded."""

    pid: int
    create_time: float | None
    device_uuid: str | None
    device_index: int | None
    first: float
    """When it was first seen there, in seconds since the epoch."""
    user: str | None
    command: str | None
    """With secrets masked."""
    name: str | None
    type: str
    framework: str | None
    container: str | None
    mig_instance: str | None
    accounted: AccountedProcess | None = None
    """Its whole life by the driver's accounting mode, if that is on, once it has ended."""

    @property
    def key(self) -> Key:
        return (self.pid, -1.0 if self.create_time is None else self.create_time, self.device_uuid or "")


class ProcessLives:
    """Follows the processes of snapshots in their order."""

    def __init__(self, find_life: Callable[[Key], ProcessLife | None], max_gap_seconds: float) -> None:
        """``find_life``: the life that was recorded before under a key, to be continued.

        ``max_gap_seconds``: seconds between two samples from which the time between them is not counted.
        """
        self._find_life = find_life
        self._max_gap_seconds = max_gap_seconds
        self._lives: dict[Key, ProcessLife] = {}
        self._changed: set[Key] = set()
        self._accounted: dict[str, tuple[AccountedProcess, ...]] = {}

    def add(self, snapshot: Snapshot) -> None:
        """Takes a snapshot; the host's own processes, on a machine without GPUs, are left out."""
        at = snapshot.taken_at.timestamp()
        for row in snapshot.processes:
            if row.device_uuid is not None:
                self._add_row(row, at)
        for device in snapshot.devices:
            if device.accounted is not self._accounted.get(device.uuid):
                self._accounted[device.uuid] = device.accounted
                self._add_accounting(device)
        forget_gone({device.uuid for device in snapshot.devices}, self._accounted)

    def _add_accounting(self, device: Device) -> None:
        """Adds the driver's accounting of ended processes to the last life of their pid."""
        for process in device.accounted:
            candidates = [
                life
                for life in self._lives.values()
                if life.device_uuid == device.uuid
                and process.may_be(life.pid, life.create_time)
                and process.started_at <= life.last + MAX_CLOCK_SKEW_SECONDS
                and not life.accounted
            ]
            if candidates:
                life = max(candidates, key=lambda life: life.last)
                life.accounted = process
                self._changed.add(life.key)

    def _add_row(self, row: Process, at: float) -> None:
        key = (row.pid, -1.0 if row.create_time is None else row.create_time, row.device_uuid or "")
        life = self._lives.get(key) or self._find_life(key)
        if life is None:
            life = ProcessLife(
                pid=row.pid, create_time=row.create_time, device_uuid=row.device_uuid, device_index=row.device_index,
                first=at, last=at, user=row.user, command=row.command, name=row.name, type=row.type,
                framework=row.framework, container=row.container, mig_instance=row.mig_instance,
            )  # fmt: skip
        self._lives[key] = life
        self._changed.add(key)
        life.observe(row, at, self._max_gap_seconds)
        life.framework = row.framework or life.framework
        life.command = row.command or life.command
        life.user = row.user or life.user

    def take_changed(self, oldest: float) -> Iterable[ProcessLife]:
        """Those that were seen since the last call. Those not seen since ``oldest`` are forgotten afterwards."""
        found = [self._lives[key] for key in self._changed]
        self._changed.clear()
        self._lives = {key: life for key, life in self._lives.items() if life.last >= oldest}
        return found
