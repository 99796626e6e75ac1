"""The last minutes of every numeric device metric, in memory.

A sample that is missing is kept as None: a gap in a graph, never a zero.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice

from gpuwatch.model.reading import number
from gpuwatch.model.snapshot import Device, Snapshot


class History:
    """Ring buffers per (device UUID, metric id). One thread writes and reads it."""

    def __init__(self, capacity: int = 600) -> None:
        """``capacity`` is in samples."""
        self.capacity = capacity
        self.snapshots = 0
        self._series: dict[tuple[str, str], deque[float | None]] = {}
        self._times: deque[float] = deque(maxlen=capacity)
        self._devices: tuple[Device, ...] | None = None
        """Those of the last sample, and what was kept of them: where nothing changes they are the same objects."""
        self._values: Mapping[tuple[str, str], float] = {}

    def add(self, snapshot: Snapshot) -> None:
        """Appends every numeric reading; devices that are away get a gap."""
        if snapshot.devices is self._devices:
            self.put(snapshot.taken_at.timestamp(), self._values)
            return
        values: dict[tuple[str, str], float] = {}
        for device in snapshot.devices:
            for metric_id, value in device.readings.items():
                as_number = number(value)
                if as_number is not None:
                    values[device.uuid, metric_id] = as_number
        self._devices, self._values = snapshot.devices, values
        self.put(snapshot.taken_at.timestamp(), values)

    def put(self, at: float, values: Mapping[tuple[str, str], float]) -> None:
        """One sample by device UUID and metric id; what is not in it gets a gap."""
        self.snapshots += 1
        self._times.append(at)
        for key, value in values.items():
            series = self._series.get(key)
            if series is None:
                series = self._series[key] = deque(maxlen=self.capacity)
            # What does not change is one object, however often it was read.
            series.append(series[-1] if series and series[-1] == value else value)
        for key, series in self._series.items():
            if key not in values:
                series.append(None)

    def series(self, uuid: str, metric_id: str) -> Sequence[float | None]:
        """Oldest first; empty when nothing was ever read. The live buffer: do not change it.

        It may be shorter than :attr:`times`: both end with the newest sample.
        """
        return self._series.get((uuid, metric_id), ())

    @property
    def times(self) -> Sequence[float]:
        """Seconds since the epoch of the samples, oldest first."""
        return self._times

    def until(self, moment: float, metrics: frozenset[str] | None = None) -> History:
        """A copy that ends with the last sample not later than ``moment``, as it was then.

        ``metrics``: of these alone; None: of all.
        """
        times = list(self._times)
        keep = bisect_right(times, moment)
        then = History(self.capacity)
        then.snapshots = self.snapshots - (len(times) - keep)
        then._times.extend(times[:keep])
        for key, series in self._series.items():
            if metrics is not None and key[1] not in metrics:
                continue
            left = keep - (len(times) - len(series))
            if left > 0:
                then._series[key] = deque(islice(series, left), maxlen=self.capacity)
        return then
