"""The base class of stores of samples: the last hour in memory, and recordings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import overload

from gpuwatch.core.model.reading import number
from gpuwatch.core.model.snapshot import Device, Process
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.metric_history import History
from gpuwatch.machine.history.reused_objects import with_reused_objects
from gpuwatch.machine.history.sample_frames import FrameDecoder, StoredSample
from gpuwatch.machine.history.sample_gaps import Gap, gap_limit

Identity = tuple[int, float | None]
"""Pid and start time of a process."""
SeriesKey = tuple[str, str]
"""UUID of a device, id of a metric."""
TimedDecoder = tuple[float, FrameDecoder]
"""Time of a sample, and a decoder that has taken its frames. Read it before the next one is asked for."""


class SampleStore(ABC):
    """Stored samples and events of one host, in memory or in a recording. Times are seconds since the epoch."""

    thinned_spacing_seconds = 0.0
    """Seconds by which samples may be apart though none is missing: those in memory are thinned out."""

    @property
    @abstractmethod
    def times(self) -> Sequence[float]:
        """Times of the samples, oldest first."""

    @abstractmethod
    def spans_without_gaps(self, min_gap_seconds: float) -> Sequence[tuple[float, float]]:
        """Start and end of each time without a gap longer than ``min_gap_seconds``, oldest first."""

    @abstractmethod
    def at(self, moment: float) -> StoredSample | None:
        """The last sample not later than ``moment``, or the first one if all are later; None if there are none."""

    def gap(self, sample_time: float, moment: float, interval: float) -> Gap | None:
        """The gap in which ``moment`` is; None if no sample is missing there.

        ``sample_time``: time of the sample that :meth:`at` gives for ``moment``. ``interval``: seconds between samples.
        """
        times = self.times
        next_index = bisect_right(times, sample_time)
        following = times[next_index] if next_index < len(times) else inf
        damaged = following <= moment
        missing = damaged or following - sample_time > max(gap_limit(interval), self.thinned_spacing_seconds)
        if not missing or not sample_time < moment <= times[-1]:
            return None
        return Gap(sample_time, moment if damaged else following, damaged)

    def last_minute_with_mean(self, uuid: str, metric: str, moment: float) -> float | None:
        """Start of the last minute before ``moment`` of which a mean of a metric of a device is kept; None: unknown."""
        return None

    @abstractmethod
    def events(self) -> Sequence[MachineEvent]:
        """The events, oldest first. The list may grow: do not change it."""

    @abstractmethod
    def chunks(self, begin: float, end: float) -> Iterator[Iterable[TimedDecoder]]:
        """The chunks with samples from ``begin`` to ``end``, and perhaps some beside them, oldest first."""

    def decoders(self, begin: float, end: float) -> Iterator[TimedDecoder]:
        """Time and decoder of each sample from ``begin`` to ``end``."""
        for chunk in self.chunks(begin, end):
            for at, decoder in chunk:
                if begin <= at <= end:
                    yield at, decoder

    def snapshots(self, begin: float = float("-inf"), end: float = float("inf")) -> Iterator[StoredSample]:
        """The samples from ``begin`` to ``end``. Unchanged parts are the same objects in the next sample."""
        last: StoredSample | None = None
        for _, decoder in self.decoders(begin, end):
            snapshot = decoder.snapshot()
            if last is not None:
                snapshot = with_reused_objects(snapshot, last.snapshot)
                decoder.continue_from(snapshot)  # what follows has these objects too
                if decoder.findings == last.findings:
                    decoder.findings = last.findings
            last = StoredSample(decoder.at, snapshot, decoder.findings)
            yield last

    def numbers(
        self, begin: float, end: float, metrics: frozenset[str]
    ) -> Iterator[tuple[Sequence[float], dict[SeriesKey, Sequence[float | None]]]]:
        """Times from ``begin`` to ``end``, a chunk at a time, and as many values of each metric of each device.

        A value is None where the device did not have it.
        """
        for chunk in self.chunks(begin, end):
            times: list[float] = []
            columns: dict[SeriesKey, list[float | None]] = {}
            last_devices: tuple[Device, ...] | None = None
            values: dict[SeriesKey, float] = {}
            for at, decoder in chunk:
                if not begin <= at <= end:
                    continue
                devices = decoder.devices()
                if devices is not last_devices:
                    last_devices = devices
                    values = {
                        (device.uuid, name): value
                        for device in devices
                        for name in metrics
                        if (value := number(device.readings.get(name))) is not None
                    }
                    for key in values.keys() - columns.keys():
                        columns[key] = [None] * len(times)
                times.append(at)
                for key, column in columns.items():
                    column.append(values.get(key))
            if times:
                yield times, {**columns}

    def history(self, end: float, seconds: float, metrics: frozenset[str]) -> History:
        """These metrics of the devices over the ``seconds`` up to ``end``, as the live history had them."""
        history = History()
        for times, columns in self.numbers(end - seconds, end, metrics):
            history.add_columns(times, columns)
        return history

    def process(self, who: Identity, begin: float, end: float) -> Iterator[tuple[float, tuple[Process, ...]]]:
        """The rows of one process in each sample from ``begin`` to ``end``; empty where it did not exist."""
        for at, decoder in self.decoders(begin, end):
            yield at, decoder.rows_of(*who)


class LazyTimes(Sequence[float]):
    """Times of samples that are looked up when they are asked for: how many there are, and the one at a place."""

    def __init__(self, count: Callable[[], int], at: Callable[[int], float]) -> None:
        self._count, self._at = count, at

    def __len__(self) -> int:
        return self._count()

    @overload
    def __getitem__(self, place: int) -> float: ...

    @overload
    def __getitem__(self, place: slice) -> list[float]: ...

    def __getitem__(self, place: int | slice) -> float | list[float]:
        places = range(len(self))[place]
        return list(map(self._at, places)) if isinstance(places, range) else self._at(places)
