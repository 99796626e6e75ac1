"""The last minutes of every numeric device metric, in memory.

A sample that is missing is kept as None: a gap in a graph, never a zero.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from math import nan
from typing import overload

from gpuwatch.model.reading import number
from gpuwatch.model.snapshot import Device, Snapshot

_GAP = nan
_SPARE = 64
"""Samples above the capacity that are dropped together."""


class Series(Sequence[float | None]):
    """The last samples of one metric, oldest first, in eight bytes each; None is a gap."""

    __slots__ = ("_capacity", "_kept")

    def __init__(self, capacity: int, kept: array[float] | None = None) -> None:
        self._capacity = capacity
        self._kept = array("d") if kept is None else kept

    def append(self, value: float | None) -> None:
        """One sample more, the oldest goes."""
        self._kept.append(_GAP if value is None else value)
        if len(self._kept) >= self._capacity + _SPARE:
            del self._kept[:_SPARE]

    def __len__(self) -> int:
        return min(len(self._kept), self._capacity)

    @overload
    def __getitem__(self, place: int) -> float | None: ...

    @overload
    def __getitem__(self, place: slice) -> list[float | None]: ...

    def __getitem__(self, place: int | slice) -> float | list[float | None] | None:
        ours = range(len(self._kept))[-self._capacity :]
        if isinstance(place, int):
            value = self._kept[ours[place]]
            return None if value != value else value
        wanted = ours[place]
        values = self._kept[wanted.start : wanted.stop] if wanted.step == 1 else [self._kept[n] for n in wanted]
        return [None if value != value else value for value in values]

    def __iter__(self) -> Iterator[float | None]:
        return iter(self[:])

    def first(self, count: int) -> Series:
        """A copy of the oldest ``count`` samples."""
        begin = len(self._kept) - len(self)
        return Series(self._capacity, self._kept[begin : begin + count])


class History:
    """Ring buffers per (device UUID, metric id). One thread writes and reads it."""

    def __init__(self, capacity: int = 600) -> None:
        """``capacity`` is in samples."""
        self.capacity = capacity
        self.snapshots = 0
        self._series: dict[tuple[str, str], Series] = {}
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
                series = self._series[key] = Series(self.capacity)
            series.append(value)
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
                then._series[key] = series.first(left)
        return then
