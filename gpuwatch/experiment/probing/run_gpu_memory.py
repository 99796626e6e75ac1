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

N = TypeVar("N", bool, int, float)

_MAX_PROCESSES = 64
"""Processes kept for each device: those with the most memory."""
MAX_POINTS = 600
"""Points kept of a run; at twice as many, pairs are merged."""


class MemoryLedger:
    """Takes snapshots; keeps the fullest one of each device that the run uses, and the processes on it."""

    def __init__(self, before: Snapshot | None) -> None:
        """``before``: the snapshot before the launch."""
        self._before = before
        self._devices: dict[str, DeviceMemory] = {}
        self._holdings: dict[tuple[str, int], Holding] = {}
        for process in before.processes if before is not None else ():
            if process.device_uuid:
                self._note_holding(process.device_uuid, process.pid, _held_bytes(process), None, own=False)

    def take(self, snapshot: Snapshot, own: Collection[int], run: Collection[int], t: float | None = None) -> None:
        """Adds a sample, taken ``t`` seconds after the launch.

        ``run``: pids of the run. ``own``: those of them that count as "this process"; a probe's helpers (a second
        worker, a process that fills the device) do not.
        """
        mine: dict[str, int | None] = {}
        used: set[str] = set()
        for process in snapshot.processes:
            if not process.device_uuid:
                continue
            held = _held_bytes(process)
            self._note_holding(process.device_uuid, process.pid, held, t, own=process.pid in run)
            if process.pid in run:
                used.add(process.device_uuid)
            if process.pid in own:
                before = mine.get(process.device_uuid, 0)
                mine[process.device_uuid] = None if held is None or before is None else before + held
        for device in snapshot.devices:
            known = self._devices.get(device.uuid)
            if known is None and device.uuid not in used:
                continue
            others = _others_bytes(snapshot, device, run)
            entry = self._device_entry(device, mine.get(device.uuid), others)
            if known is not None:
                held_now = (entry.process_bytes or 0, entry.used_bytes or 0)
                fuller = device.uuid in used and held_now >= (known.process_bytes or 0, known.used_bytes or 0)
                entry = msgspec.structs.replace(
                    entry if fuller else known,
                    others_start_bytes=known.others_start_bytes,
                    others_peak_bytes=_max_known(known.others_peak_bytes, others),
                    least_free_bytes=_min_known(known.least_free_bytes, _free_bytes(device)),
                    own_samples=known.own_samples,
                    busiest_percent=known.busiest_percent,
                )
            self._devices[device.uuid] = _with_load(entry, known, device) if device.uuid in used else entry

    def _note_holding(self, uuid: str, pid: int, held: int | None, t: float | None, *, own: bool) -> None:
        known = self._holdings.get((uuid, pid))
        if known is None:
            before = held if t is None else None
            self._holdings[uuid, pid] = Holding(
                pid=pid, own=own, before_bytes=before, peak_bytes=held, first_seconds=t, last_seconds=t
            )
            return
        self._holdings[uuid, pid] = msgspec.structs.replace(
            known,
            own=known.own or own,
            peak_bytes=_max_known(known.peak_bytes, held),
            first_seconds=known.first_seconds if known.first_seconds is not None else t,
            last_seconds=t if t is not None else known.last_seconds,
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
        found = [held for (where, _), held in self._holdings.items() if where == uuid]
        found.sort(key=lambda held: (-(held.peak_bytes or 0), held.pid))
        return tuple(found[:_MAX_PROCESSES])


def _with_load(entry: DeviceMemory, known: DeviceMemory | None, device: Device) -> DeviceMemory:
    """The entry with one more sample in which the run was on the device."""
    busy, samples = device.number("utilization.gpu_percent"), known.own_samples if known is not None else 0
    if known is not None and samples:
        most = known.busiest_percent
        busy = None if busy is None or most is None else max(busy, most)
    return msgspec.structs.replace(entry, own_samples=samples + 1, busiest_percent=busy)


def _others_bytes(snapshot: Snapshot, device: Device, run: Collection[int]) -> int | None:
    """Memory of all other processes; None if NVML does not report it for one of them."""
    others = [row for row in snapshot.processes if row.device_uuid == device.uuid and row.pid not in run]
    known = [held for row in others if (held := _held_bytes(row)) is not None]
    return sum(known) if len(known) == len(others) else None


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


class Trace:
    """Evenly spaced points of one device, each with the peak of its interval."""

    def __init__(self) -> None:
        self.process_peak: int | None = None
        """Bytes of the run."""
        self.device_peak: int | None = None
        """Bytes in use by all owners."""
        self._points: list[MemoryPoint] = []
        self._every = 1
        self._pending: MemoryPoint | None = None
        self._gathered = 0

    def add(self, point: MemoryPoint) -> None:
        self.process_peak = _max_known(self.process_peak, point.process_bytes)
        self.device_peak = _max_known(self.device_peak, point.device_used_bytes)
        self._pending = point if self._pending is None else _fullest(self._pending, point)
        self._gathered += 1
        if self._gathered >= self._every:
            self._points.append(self._pending)
            self._pending, self._gathered = None, 0
        if len(self._points) >= 2 * MAX_POINTS:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [_fullest(point, other) for point, other in pairs]
            self._every *= 2

    def points(self) -> tuple[MemoryPoint, ...]:
        return (*self._points, *([] if self._pending is None else [self._pending]))


class Timeline:
    """Keeps every peak; each device has its own trace."""

    def __init__(self, started: float) -> None:
        """``started``: monotonic time of the launch."""
        self._started = started
        self._traces: dict[str, Trace] = {}
        self._mapped: frozenset[str] = frozenset()

    def prefer(self, uuids: Collection[str]) -> None:
        """Sets the GPUs of the run's device map, which are preferred if one of them was used."""
        self._mapped = frozenset(uuids)

    @property
    def device(self) -> str | None:
        """UUID of the device on which the run's peak was largest; None if it held memory on none."""
        held = [(uuid, trace.process_peak or 0) for uuid, trace in self._traces.items() if trace.process_peak]
        mapped = [pair for pair in held if pair[0] in self._mapped]
        return max(mapped or held, key=lambda pair: pair[1])[0] if held else None

    @property
    def shown(self) -> Trace:
        """That device's, else that of any."""
        return self._traces.get(self.device or "") or next(iter(self._traces.values()), Trace())

    def take(
        self, snapshot: Snapshot, sizes: Mapping[str, float], inside: int | None, now: float, own: set[int]
    ) -> None:
        """Adds a sample; ``sizes``: the run's bytes, by device; ``inside``: its allocator's; ``own``: its pids."""
        for device in snapshot.devices:
            held = sizes.get(device.uuid)
            self._traces.setdefault(device.uuid, Trace()).add(
                MemoryPoint(
                    t=round(now - self._started, 3),
                    device_used_bytes=_metric_bytes(device, "memory.used_bytes"),
                    process_bytes=None if held is None else int(held),
                    allocator_bytes=inside,
                    gpu_percent=device.number("utilization.gpu_percent"),
                    computes=_computes(device, snapshot, own),
                )
            )


def _computes(device: Device, snapshot: Snapshot, own: set[int]) -> bool | None:
    """Whether kernels of ``own`` ran on a device; None if the driver does not report it, or none of them is listed.

    It has no sample of a process without kernels (nvmlDeviceGetProcessUtilization), and one of 0 % for a few short
    ones, or for some that ended a while ago. Of nobody has it samples on a GPU that it does not sample.
    """
    rows = [row for row in snapshot.processes if row.device_uuid == device.uuid]
    mine = [row for row in rows if row.pid in own]
    if any(row.number("sm_percent") for row in mine):
        return True
    unsampled = all((lack := row.missing.get("sm_percent")) and lack.reason == "no_sample" for row in mine)
    told = device.number("utilization.gpu_percent") == 0 or any(row.number("sm_percent") for row in rows)
    return False if mine and unsampled and told else None


def _fullest(item: MemoryPoint, other: MemoryPoint) -> MemoryPoint:
    return msgspec.structs.replace(
        item,
        device_used_bytes=_max_known(item.device_used_bytes, other.device_used_bytes),
        process_bytes=_max_known(item.process_bytes, other.process_bytes),
        allocator_bytes=_max_known(item.allocator_bytes, other.allocator_bytes),
        gpu_percent=_max_known(item.gpu_percent, other.gpu_percent),
        computes=_max_known(item.computes, other.computes),
    )


def _max_known(before: N | None, now: N | None) -> N | None:
    """The larger of two numbers, either of which may be unknown."""
    if before is None or now is None:
        return now if before is None else before
    return max(before, now)
