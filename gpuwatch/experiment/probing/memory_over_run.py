"""Device memory over a run, in a bounded number of points whether it lasts a second or a month."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

import msgspec

from gpuwatch.core.model.run import MemoryPoint
from gpuwatch.core.model.snapshot import Device, Snapshot

N = TypeVar("N", bool, int, float)

MAX_POINTS = 600
"""Points kept; at twice as many, pairs are merged."""


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
        self.process_peak = max_known(self.process_peak, point.process_bytes)
        self.device_peak = max_known(self.device_peak, point.device_used_bytes)
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
            used, held = device.number("memory.used_bytes"), sizes.get(device.uuid)
            self._traces.setdefault(device.uuid, Trace()).add(
                MemoryPoint(
                    t=round(now - self._started, 3),
                    device_used_bytes=None if used is None else int(used),
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
        device_used_bytes=max_known(item.device_used_bytes, other.device_used_bytes),
        process_bytes=max_known(item.process_bytes, other.process_bytes),
        allocator_bytes=max_known(item.allocator_bytes, other.allocator_bytes),
        gpu_percent=max_known(item.gpu_percent, other.gpu_percent),
        computes=max_known(item.computes, other.computes),
    )


def max_known(before: N | None, now: N | None) -> N | None:
    """The larger of two numbers, either of which may be unknown."""
    if before is None or now is None:
        return now if before is None else before
    return max(before, now)
