"""The last minutes of every numeric device metric, in memory.

A sample that is missing is kept as None: a gap in a graph, never a zero.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from gpuwatch.model.reading import number
from gpuwatch.model.snapshot import Snapshot


class History:
    """Ring buffers per (device UUID, metric id). One thread writes and reads it."""

    def __init__(self, capacity: int = 600) -> None:
        """``capacity`` is in samples."""
        self.capacity = capacity
        self.snapshots = 0
        self._series: dict[tuple[str, str], deque[float | None]] = {}
        self._times: deque[float] = deque(maxlen=capacity)

    def add(self, snapshot: Snapshot) -> None:
        """Appends every numeric reading; devices that are away get a gap."""
        self.snapshots += 1
        self._times.append(snapshot.taken_at.timestamp())
        seen: set[tuple[str, str]] = set()
        for device in snapshot.devices:
            for metric_id, value in device.readings.items():
                as_number = number(value)
                if as_number is None:
                    continue
                key = (device.uuid, metric_id)
                seen.add(key)
                series = self._series.get(key)
                if series is None:
                    series = self._series[key] = deque(maxlen=self.capacity)
                series.append(as_number)
        for key, series in self._series.items():
            if key not in seen:
                series.append(None)

    def series(self, uuid: str, metric_id: str) -> Sequence[float | None]:
        """Oldest first; empty when nothing was ever read. The live buffer: do not change it."""
        return self._series.get((uuid, metric_id), ())

    @property
    def times(self) -> Sequence[float]:
        """Seconds since the epoch of the samples, oldest first."""
        return self._times
