"""Device memory over a run that may last a second or a month, in a bounded number of points."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gpuwatch.model.run import MemoryPoint
from gpuwatch.model.snapshot import Snapshot

MOST = 600
"""Points that are kept; when there are twice as many, two become one."""


class Timeline:
    """Evenly spaced points, each with the most of its stretch of time, so that no peak is thinned away."""

    def __init__(self, started: float) -> None:
        """``started``: monotonic time of the launch."""
        self._started = started
        self._points: list[MemoryPoint] = []
        self._every = 1
        self._pending: MemoryPoint | None = None
        self._gathered = 0
        self.device: str | None = None
        """UUID of the device on which the run holds most."""
        self.process_peak: int | None = None
        self.device_peak: int | None = None

    def take(self, snapshot: Snapshot, sizes: Mapping[str, float], allocator: int | None, now: float) -> None:
        """One sample; ``sizes`` is what the run's processes hold together, by device."""
        if sizes:
            self.device = max(sizes, key=lambda uuid: sizes[uuid])
        device = snapshot.device(self.device) if self.device else next(iter(snapshot.devices), None)
        if device is None:
            return
        held = int(max(sizes.values())) if sizes else None
        used = device.number("memory.used_bytes")
        self.process_peak = larger(self.process_peak, held)
        self.device_peak = larger(self.device_peak, None if used is None else int(used))
        point = MemoryPoint(
            t=round(now - self._started, 3),
            device_used_bytes=None if used is None else int(used),
            process_bytes=held,
            allocator_bytes=allocator,
            gpu_percent=device.number("utilization.gpu_percent"),
        )
        self._pending = point if self._pending is None else _most(self._pending, point)
        self._gathered += 1
        if self._gathered >= self._every:
            self._points.append(self._pending)
            self._pending, self._gathered = None, 0
        if len(self._points) >= 2 * MOST:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [_most(one, other) for one, other in pairs]
            self._every *= 2

    def points(self) -> tuple[MemoryPoint, ...]:
        """All of it so far."""
        return (*self._points, *([] if self._pending is None else [self._pending]))


def _most(one: MemoryPoint, other: MemoryPoint) -> MemoryPoint:
    percents = [point.gpu_percent for point in (one, other) if point.gpu_percent is not None]
    return msgspec.structs.replace(
        one,
        device_used_bytes=larger(one.device_used_bytes, other.device_used_bytes),
        process_bytes=larger(one.process_bytes, other.process_bytes),
        allocator_bytes=larger(one.allocator_bytes, other.allocator_bytes),
        gpu_percent=max(percents) if percents else None,
    )


def larger(before: int | None, now: int | None) -> int | None:
    """The larger of two numbers of which either may be unknown."""
    if before is None or now is None:
        return now if before is None else before
    return max(before, now)
