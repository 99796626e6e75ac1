"""The last minutes of every numeric device metric, in memory.

A sample that is missing is kept as None: a gap in a graph, never a zero.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import nan
from typing import overload

from gpuwatch.model.reading import number
from gpuwatch.model.snapshot import Device, Snapshot

_GAP = nan
_SPARE = 64
"""Samples that come before those above the capacity are dropped."""


class Series(Sequence[float | None]):
    """The last samples of one metric, oldest first, in eight bytes each; None is a gap."""

    __slots__ = ("_capacity", "_kept", "put")

    def __init__(self, capacity: int, kept: array[float] | None = None) -> None:
        self._capacity = capacity
        self._kept = array("d") if kept is None else kept
        self.put = self._kept.append
        """One sample more, NaN for a gap. Whoever puts many calls :meth:`trim` now and then."""

    def trim(self) -> None:
        """Forgets the oldest, above the capacity."""
        more = len(self._kept) - self._capacity
        if more > 0:
            del self._kept[:more]

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
        """Those of the last sample: where nothing changes they are the same objects."""
        self._puts: tuple[tuple[Callable[[float], None], float], ...] = ()
        """The last sample as it went into each series, so that the same one is quickly put again."""

    def add(self, snapshot: Snapshot) -> None:
        """Appends every numeric reading; devices that are away get a gap."""
        if snapshot.devices is self._devices:
            self._again(snapshot.taken_at.timestamp())
            return
        values: dict[tuple[str, str], float] = {}
        for device in snapshot.devices:
            for metric_id, value in device.readings.items():
                as_number = number(value)
                if as_number is not None:
                    values[device.uuid, metric_id] = as_number
        self.put(snapshot.taken_at.timestamp(), values)
        self._devices = snapshot.devices

    def put(self, at: float, values: Mapping[tuple[str, str], float]) -> None:
        """One sample by device UUID and metric id; what is not in it gets a gap."""
        for key in values:
            if key not in self._series:
                self._series[key] = Series(self.capacity)
        self._devices = None
        self._puts = tuple([(series.put, values.get(key, _GAP)) for key, series in self._series.items()])
        self._again(at)

    def _again(self, at: float) -> None:
        """The values of the sample before, once more."""
        self.snapshots += 1
        self._times.append(at)
        for put, value in self._puts:
            put(value)
        if self.snapshots % _SPARE == 0:
            for series in self._series.values():
                series.trim()

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
