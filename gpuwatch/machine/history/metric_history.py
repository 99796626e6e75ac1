"""The last minutes of every numeric device metric, in memory. A missing sample is None: a gap in a graph, never 0."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import nan
from typing import overload

from gpuwatch.core.model.reading import number
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.machine.history.gone_gpus import LastProcesses, forget_gone

_GAP = nan
_SPARE_SAMPLES = 64
"""Samples beyond the capacity that may pile up before they are dropped together."""


class Series(Sequence[float | None]):
    """The last samples of one metric, oldest first, eight bytes each; None is a gap."""

    __slots__ = ("_capacity", "_values", "extended_to", "last")

    def __init__(self, capacity: int, extended_to: int = 0, values: array[float] | None = None) -> None:
        self._capacity = capacity
        self._values = array("d") if values is None else values
        self.last = _GAP
        """The newest sample; NaN for a gap."""
        self.extended_to = extended_to
        """Samples of the history up to which this series has been extended."""

    def extend_to(self, count: int) -> None:
        """Extends the series to ``count`` samples of the history by repeating the last one."""
        more = count - self.extended_to
        if more <= 0:
            return
        self.extended_to = count
        if more == 1:
            self._values.append(self.last)
        else:
            self._values.extend(array("d", (self.last,)) * min(more, self._capacity))
        if len(self._values) > self._capacity + _SPARE_SAMPLES:
            del self._values[: -self._capacity]

    def extend(self, values: array[float]) -> None:
        """Appends these samples, at least one, after :meth:`extend_to`; the last one is :attr:`last`."""
        self._values.extend(values[:-1])
        self.last = values[-1]
        self.extended_to += len(values) - 1
        if len(self._values) > self._capacity + _SPARE_SAMPLES:
            del self._values[: -self._capacity]

    def __len__(self) -> int:
        return min(len(self._values), self._capacity)

    @overload
    def __getitem__(self, place: int) -> float | None: ...

    @overload
    def __getitem__(self, place: slice) -> list[float | None]: ...

    def __getitem__(self, place: int | slice) -> float | list[float | None] | None:
        places = range(len(self._values))[-self._capacity :]
        if isinstance(place, int):
            value = self._values[places[place]]
            return None if value != value else value
        wanted = places[place]
        values = self._values[wanted.start : wanted.stop] if wanted.step == 1 else [self._values[n] for n in wanted]
        return [None if value != value else value for value in values]

    def __iter__(self) -> Iterator[float | None]:
        return iter(self[:])

    def prepend(self, values: Sequence[float | None], gap: int) -> None:
        """Inserts older samples, and ``gap`` samples without a value after them."""
        older = array("d", (_GAP if value is None else value for value in values))
        self._values = older + array("d", (_GAP,)) * gap + self._values

    def first(self, count: int) -> Series:
        """A copy of the oldest ``count`` samples."""
        begin = len(self._values) - len(self)
        return Series(self._capacity, self.extended_to, self._values[begin : begin + count])


def _differ_in_values_only(before: Sequence[Device], now: Sequence[Device]) -> bool:
    """Whether devices and their readings are the same, apart from values."""
    return len(before) == len(now) and all(
        a is b or (a.uuid == b.uuid and a.readings.keys() == b.readings.keys())
        for a, b in zip(before, now, strict=True)
    )


class History:
    """Ring buffers per (device UUID, metric id). One thread writes and reads it."""

    def __init__(self, capacity: int = 600) -> None:
        """``capacity`` is in samples."""
        self.capacity = capacity
        self.sample_count = 0
        """Samples that were added, those beyond the capacity too."""
        self._series: dict[tuple[str, str], Series] = {}
        self._times: deque[float] = deque(maxlen=capacity)
        self._last_numbers: dict[tuple[str, str], float] = {}
        """Last number before the current gap."""
        self._devices: tuple[Device, ...] | None = None
        """Devices of the last sample, to find what has changed."""
        self._processes: tuple[Process, ...] = ()
        self.last_processes = LastProcesses()

    def add(self, snapshot: Snapshot) -> None:
        """Appends every numeric reading; missing devices get a gap."""
        before, self._processes = self._processes, snapshot.processes
        if self._devices is not None and _differ_in_values_only(self._devices, snapshot.devices):
            self._put_changes(self._devices, snapshot.devices)
            self._devices = snapshot.devices
            # Series are extended when they are read, or when their value changes.
            self.sample_count += 1
            self._times.append(snapshot.taken_at.timestamp())
            return
        self.last_processes.update_from(self._devices or (), before, snapshot)
        values: dict[tuple[str, str], float] = {}
        for device in snapshot.devices:
            for metric_id, value in device.readings.items():
                as_number = number(value)
                if as_number is not None:
                    values[device.uuid, metric_id] = as_number
        self.add_numbers(snapshot.taken_at.timestamp(), values)
        self._devices = snapshot.devices

    def _put_changes(self, before: Sequence[Device], now: Sequence[Device]) -> None:
        """Appends only changed readings: in most samples there are few."""
        count = self.sample_count
        for device, old in zip(now, before, strict=True):
            if device is old:
                continue
            old_readings = old.readings
            for metric_id, value in device.readings.items():
                old_value = old_readings[metric_id]
                if value is old_value or value == old_value:
                    continue
                as_number, key = number(value), (device.uuid, metric_id)
                series = self._series.get(key)
                if series is None:
                    if as_number is None:
                        continue
                    series = self._series[key] = Series(self.capacity, count)
                series.extend_to(count)
                series.last = _GAP if as_number is None else as_number

    def add_numbers(self, at: float, values: Mapping[tuple[str, str], float]) -> None:
        """Appends a sample, by device UUID and metric id; all other metrics get a gap."""
        self.add_columns((at,), {key: (value,) for key, value in values.items()})
        forget_gone({uuid for uuid, _ in values}, self._series, self._last_numbers, self.last_processes)

    def add_columns(self, times: Sequence[float], columns: Mapping[tuple[str, str], Sequence[float | None]]) -> None:
        """Appends samples; each column has as many values, None for a gap. All other metrics get gaps."""
        if not times:
            return
        before, gaps = self.sample_count, array("d", (_GAP,)) * len(times)
        for key in columns:
            if key not in self._series:
                self._series[key] = Series(self.capacity, before)
        self._devices = None
        for key, series in self._series.items():
            series.extend_to(before)
            column = columns.get(key)
            last = series.last
            if column is None:
                series.extend(gaps)
            else:
                series.extend(array("d", [_GAP if value is None else value for value in column]))
                last = next((value for value in reversed(column) if value is not None), last)
            if series.last != series.last and last == last:
                self._last_numbers[key] = last
        self.sample_count += len(times)
        self._times.extend(times)

    def series(self, uuid: str, metric_id: str) -> Sequence[float | None]:
        """The live buffer, oldest first; empty if there is none. Do not change it.

        It may be shorter than :attr:`times`; both end with the newest sample.
        """
        series = self._series.get((uuid, metric_id))
        if series is None:
            return ()
        series.extend_to(self.sample_count)
        return series

    def prepend(self, earlier: History) -> None:
        """Inserts what is older than the first sample, as far as the capacity allows."""
        times, own = list(earlier.times), list(self._times)
        last = bisect_left(times, own[0]) if own else len(times)
        count = min(last, self.capacity - len(own))
        if count <= 0:
            return
        self.sample_count += count
        for series in self._series.values():
            series.extended_to += count
        for uuid, metric_id in list(earlier._series):
            known = earlier.series(uuid, metric_id)
            column = [*[None] * (len(times) - len(known)), *known]
            series = self._series.setdefault((uuid, metric_id), Series(self.capacity, self.sample_count))
            series.extend_to(self.sample_count)
            series.prepend(column[last - count : last], len(own) - len(series))
        self._times = deque([*times[last - count : last], *own], maxlen=self.capacity)

    def keys(self, metrics: frozenset[str]) -> list[tuple[str, str]]:
        """UUID and metric of each series of these metrics."""
        return [key for key in self._series if key[1] in metrics]

    def last_number(self, uuid: str, metric_id: str) -> float | None:
        """The last number, however old; None if there is none."""
        series = self._series.get((uuid, metric_id))
        if series is not None and series.last == series.last:
            return series.last
        return self._last_numbers.get((uuid, metric_id))

    def fall_back_to(self, other: History) -> None:
        """Makes :meth:`last_number` fall back to the numbers of ``other``."""
        self._last_numbers = {key: series.last for key, series in other._series.items() if series.last == series.last}
        self._last_numbers = other._last_numbers | self._last_numbers

    def remember_lost(self, device: Device, processes: Iterable[Process]) -> None:
        """Makes :meth:`last_number` and :attr:`last_processes` tell what a device last had that no longer answers."""
        values = ((name, number(value)) for name, value in device.readings.items())
        self._last_numbers |= {(device.uuid, name): value for name, value in values if value is not None}
        self.last_processes.remember(device.uuid, processes)

    @property
    def times(self) -> Sequence[float]:
        """Times of the samples in seconds since the epoch, oldest first."""
        return self._times

    def until(self, moment: float, metrics: frozenset[str] | None = None) -> History:
        """A copy as of ``moment``: it ends with the last sample not later. ``metrics``: only these; None: all."""
        times = list(self._times)
        keep = bisect_right(times, moment)
        then = History(self.capacity)
        then.sample_count = self.sample_count - (len(times) - keep)
        then._times.extend(times[:keep])
        then.fall_back_to(self)
        then.last_processes = self.last_processes
        for key, series in self._series.items():
            if metrics is not None and key[1] not in metrics:
                continue
            series.extend_to(self.sample_count)
            left = keep - (len(times) - len(series))
            if left > 0:
                then._series[key] = series.first(left)
                then._series[key].extended_to = then.sample_count
        return then
