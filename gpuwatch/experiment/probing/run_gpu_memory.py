"""Who held how much memory on each device during a run, from NVML's samples.

Each number belongs to one owner: the run's own process, other processes, or the driver. Numbers of different sources
are never added up; what NVML's numbers do not account for is "unexplained". Over the run, memory is kept in a bounded
number of points, whether that lasts a second or a month.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

import msgspec

from gpuwatch.core.model.run_memory import DeviceMemory, Holding, MemoryPoint
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.sim.simulated_machine import context_bytes

Number = TypeVar("Number", bool, int, float)

_MAX_PROCESSES = 64
"""Processes kept for each device: those with the most memory."""
MAX_POINTS = 600
"""Points kept of a run; at twice as many, pairs are merged."""


class DeviceMemoryTracker:
    """Takes snapshots; keeps the fullest one of each device that the run uses, and the processes on it."""

    def __init__(self, before: Snapshot | None) -> None:
        """``before``: the snapshot before the launch."""
        self._before = before
        self._devices: dict[str, DeviceMemory] = {}
        self._holdings: dict[tuple[str, int], Holding] = {}
        for process in before.processes if before is not None else ():
            if process.device_uuid:
                self._note_holding(process.device_uuid, process.pid, _held_bytes(process), None, own=False)

    def take_snapshot(
        self, snapshot: Snapshot, own_pids: Collection[int], run_pids: Collection[int], seconds: float | None = None
    ) -> None:
        """Adds a sample, taken ``seconds`` seconds after the launch.

        ``run_pids``: pids of the run. ``own_pids``: those of them that count as "this process"; a probe's helpers (a
        second worker, a process that fills the device) do not.
        """
        own_bytes: dict[str, int | None] = {}
        used_uuids: set[str] = set()
        for process in snapshot.processes:
            if not process.device_uuid:
                continue
            held = _held_bytes(process)
            self._note_holding(process.device_uuid, process.pid, held, seconds, own=process.pid in run_pids)
            if process.pid in run_pids:
                used_uuids.add(process.device_uuid)
            if process.pid in own_pids:
                earlier_bytes = own_bytes.get(process.device_uuid, 0)
                own_bytes[process.device_uuid] = None if held is None or earlier_bytes is None else earlier_bytes + held
        for device in snapshot.devices:
            earlier = self._devices.get(device.uuid)
            if earlier is None and device.uuid not in used_uuids:
                continue
            others = _others_bytes(snapshot, device, run_pids)
            entry = self._device_entry(device, own_bytes.get(device.uuid), others)
            if earlier is not None:
                held_now = (entry.process_bytes or 0, entry.used_bytes or 0)
                fuller = device.uuid in used_uuids and held_now >= (earlier.process_bytes or 0, earlier.used_bytes or 0)
                entry = msgspec.structs.replace(
                    entry if fuller else earlier,
                    others_start_bytes=earlier.others_start_bytes,
                    others_peak_bytes=_max_known(earlier.others_peak_bytes, others),
                    least_free_bytes=_min_known(earlier.least_free_bytes, _free_bytes(device)),
                    own_samples=earlier.own_samples,
                    busiest_percent=earlier.busiest_percent,
                )
            self._devices[device.uuid] = _with_load(entry, earlier, device) if device.uuid in used_uuids else entry

    def _note_holding(self, uuid: str, pid: int, held: int | None, seconds: float | None, *, own: bool) -> None:
        earlier = self._holdings.get((uuid, pid))
        if earlier is None:
            before = held if seconds is None else None
            self._holdings[uuid, pid] = Holding(
                pid=pid, own=own, before_bytes=before, peak_bytes=held, first_seconds=seconds, last_seconds=seconds
            )
            return
        self._holdings[uuid, pid] = msgspec.structs.replace(
            earlier,
            own=earlier.own or own,
            peak_bytes=_max_known(earlier.peak_bytes, held),
            first_seconds=earlier.first_seconds if earlier.first_seconds is not None else seconds,
            last_seconds=seconds if seconds is not None else earlier.last_seconds,
        )

    def _device_entry(self, device: Device, held: int | None, others: int | None) -> DeviceMemory:
        before = self._before.device(device.uuid) if self._before is not None else None
        return DeviceMemory(
            uuid=device.uuid,
            index=device.index,
            total_bytes=_metric_bytes(device, "memory.total_bytes"),
            before_bytes=None if before is None else _metric_bytes(before, "memory.used_bytes"),
            used_bytes=_metric_bytes(device, "memory.used_bytes"),
            process_bytes=held,
            others_bytes=others,
            unexplained_bytes=_metric_bytes(device, "memory.unexplained_bytes"),
            driver_reserved_bytes=_metric_bytes(device, "memory.reserved_bytes"),
            others_before_bytes=None if self._before is None else _others_bytes(self._before, device, ()),
            others_start_bytes=others,
            others_peak_bytes=others,
            least_free_bytes=_free_bytes(device),
        )

    def result(self, *, context: bool) -> tuple[DeviceMemory, ...]:
        """The devices that the run used. ``context``: they are simulated GPUs with CUDA contexts."""
        entries = []
        for entry in sorted(self._devices.values(), key=lambda entry: entry.index):
            entry = msgspec.structs.replace(entry, holders=self._holders(entry.uuid))
            if context and entry.total_bytes is not None:
                entry = msgspec.structs.replace(entry, context_bytes=context_bytes(entry.total_bytes))
            entries.append(entry)
        return tuple(entries)

    def _holders(self, uuid: str) -> tuple[Holding, ...]:
        holdings = [held for (where, _), held in self._holdings.items() if where == uuid]
        holdings.sort(key=lambda held: (-(held.peak_bytes or 0), held.pid))
        return tuple(holdings[:_MAX_PROCESSES])


def _with_load(entry: DeviceMemory, earlier: DeviceMemory | None, device: Device) -> DeviceMemory:
    """The entry with one more sample in which the run was on the device."""
    busy_percent, samples = device.number("utilization.gpu_percent"), earlier.own_samples if earlier is not None else 0
    if earlier is not None and samples:
        earlier_percent = earlier.busiest_percent
        busy_percent = None if busy_percent is None or earlier_percent is None else max(busy_percent, earlier_percent)
    return msgspec.structs.replace(entry, own_samples=samples + 1, busiest_percent=busy_percent)


def _others_bytes(snapshot: Snapshot, device: Device, run_pids: Collection[int]) -> int | None:
    """Memory of all other processes; None if NVML does not report it for one of them."""
    other_processes = [row for row in snapshot.processes if row.device_uuid == device.uuid and row.pid not in run_pids]
    known_bytes = [held for row in other_processes if (held := _held_bytes(row)) is not None]
    return sum(known_bytes) if len(known_bytes) == len(other_processes) else None


def _held_bytes(process: Process) -> int | None:
    held = process.number("gpu_memory_bytes")
    return None if held is None else int(held)


def _metric_bytes(device: Device, metric: str) -> int | None:
    value = device.number(metric)
    return None if value is None else int(value)


def _free_bytes(device: Device) -> int | None:
    free = _metric_bytes(device, "memory.free_bytes")
    if free is not None:
        return free
    total, used = _metric_bytes(device, "memory.total_bytes"), _metric_bytes(device, "memory.used_bytes")
    if total is None or used is None:
        return None
    return total - used - (_metric_bytes(device, "memory.reserved_bytes") or 0)


def _min_known(before: int | None, now: int | None) -> int | None:
    return now if before is None else before if now is None else min(before, now)


class DeviceTimeline:
    """Evenly spaced points of one device, each with the peak of its interval."""

    def __init__(self) -> None:
        self.process_peak: int | None = None
        """Bytes of the run."""
        self.device_peak: int | None = None
        """Bytes in use by all owners."""
        self._points: list[MemoryPoint] = []
        self._samples_per_point = 1
        self._pending: MemoryPoint | None = None
        self._pending_samples = 0

    def add(self, point: MemoryPoint) -> None:
        self.process_peak = _max_known(self.process_peak, point.process_bytes)
        self.device_peak = _max_known(self.device_peak, point.device_used_bytes)
        self._pending = point if self._pending is None else _fullest(self._pending, point)
        self._pending_samples += 1
        if self._pending_samples >= self._samples_per_point:
            self._points.append(self._pending)
            self._pending, self._pending_samples = None, 0
        if len(self._points) >= 2 * MAX_POINTS:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [_fullest(point, other) for point, other in pairs]
            self._samples_per_point *= 2

    def points(self) -> tuple[MemoryPoint, ...]:
        return (*self._points, *([] if self._pending is None else [self._pending]))


class MemoryTimeline:
    """Keeps every peak; each device has its own trace."""

    def __init__(self, started: float) -> None:
        """``started``: monotonic time of the launch."""
        self._started = started
        self._timelines: dict[str, DeviceTimeline] = {}
        self._preferred_uuids: frozenset[str] = frozenset()

    def prefer_devices(self, uuids: Collection[str]) -> None:
        """Sets the GPUs of the run's device map, which are preferred if one of them was used."""
        self._preferred_uuids = frozenset(uuids)

    @property
    def busiest_device(self) -> str | None:
        """UUID of the device on which the run's peak was largest; None if it held memory on none."""
        peaks = {uuid: peak for uuid, timeline in self._timelines.items() if (peak := timeline.process_peak)}
        preferred = [uuid for uuid in peaks if uuid in self._preferred_uuids]
        return max(preferred or list(peaks), key=lambda uuid: peaks[uuid], default=None)

    @property
    def busiest_timeline(self) -> DeviceTimeline:
        """That device's, else that of any."""
        return self._timelines.get(self.busiest_device or "") or next(iter(self._timelines.values()), DeviceTimeline())

    def has_grown(self, before: Snapshot) -> bool:
        """Whether a sample showed more memory in use, by anybody, than there was ``before``."""
        used_before = {device.uuid: _metric_bytes(device, "memory.used_bytes") or 0 for device in before.devices}
        return any((timeline.device_peak or 0) > used_before.get(uuid, 0) for uuid, timeline in self._timelines.items())

    def take_snapshot(
        self,
        snapshot: Snapshot,
        bytes_by_gpu: Mapping[str, float],
        allocator_bytes: int | None,
        now: float,
        own_pids: set[int],
    ) -> None:
        """Adds a sample; ``bytes_by_gpu``: the run's bytes, by device; ``allocator_bytes``: its allocator's;
        ``own_pids``: its pids."""
        for device in snapshot.devices:
            run_bytes = bytes_by_gpu.get(device.uuid)
            self._timelines.setdefault(device.uuid, DeviceTimeline()).add(
                MemoryPoint(
                    t=round(now - self._started, 3),
                    device_used_bytes=_metric_bytes(device, "memory.used_bytes"),
                    process_bytes=None if run_bytes is None else int(run_bytes),
                    allocator_bytes=allocator_bytes,
                    gpu_percent=device.number("utilization.gpu_percent"),
                    computes=_ran_kernels(device, snapshot, own_pids),
                )
            )


def _ran_kernels(device: Device, snapshot: Snapshot, own_pids: set[int]) -> bool | None:
    """Whether kernels of ``own_pids`` ran on a device; None if the driver does not report it, or none of them is
    listed.

    It has no sample of a process without kernels (nvmlDeviceGetProcessUtilization), and one of 0 % for a few short
    ones, or for some that ended a while ago. Of nobody has it samples on a GPU that it does not sample.
    """
    processes = [row for row in snapshot.processes if row.device_uuid == device.uuid]
    own_processes = [row for row in processes if row.pid in own_pids]
    if any(row.number("sm_percent") for row in own_processes):
        return True
    unsampled = all(
        (missing_reading := row.missing.get("sm_percent")) and missing_reading.reason == "no_sample"
        for row in own_processes
    )
    others_sampled = device.number("utilization.gpu_percent") == 0 or any(row.number("sm_percent") for row in processes)
    return False if own_processes and unsampled and others_sampled else None


def _fullest(first: MemoryPoint, second: MemoryPoint) -> MemoryPoint:
    return msgspec.structs.replace(
        first,
        device_used_bytes=_max_known(first.device_used_bytes, second.device_used_bytes),
        process_bytes=_max_known(first.process_bytes, second.process_bytes),
        allocator_bytes=_max_known(first.allocator_bytes, second.allocator_bytes),
        gpu_percent=_max_known(first.gpu_percent, second.gpu_percent),
        computes=_max_known(first.computes, second.computes),
    )


def _max_known(before: Number | None, now: Number | None) -> Number | None:
    """The larger of two numbers, either of which may be unknown."""
    if before is None or now is None:
        return now if before is None else before
    return max(before, now)
