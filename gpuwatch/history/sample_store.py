"""The interface of stored samples, in memory or in a recording."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, overload

from gpuwatch.history.machine_event import MachineEvent
from gpuwatch.history.metric_series import History
from gpuwatch.model.findings import Finding
from gpuwatch.model.snapshot import Process, Snapshot

Identity = tuple[int, float | None]
"""Pid and start time of a process."""


class Kept(NamedTuple):
    """The machine at one moment."""

    at: float
    """Seconds since the epoch."""
    snapshot: Snapshot
    findings: tuple[Finding, ...]


class SampleStore(Protocol):
    """Stored samples and events of one host. Times are seconds since the epoch."""

    @property
    def times(self) -> Sequence[float]:
        """Times of the samples, oldest first."""
        ...

    def stretches(self, longer: float) -> Sequence[tuple[float, float]] | None:
        """Begin and end of each time without a gap longer than so many seconds; None: they follow from ``times``."""
        ...

    def at(self, moment: float) -> Kept | None:
        """The last sample not later than ``moment``, or the first one if all are later; None if there are none."""
        ...

    def history(self, end: float, seconds: float, metrics: frozenset[str]) -> History:
        """These metrics of the devices over the ``seconds`` up to ``end``."""
        ...

    def process(self, who: Identity, begin: float, end: float) -> Iterator[tuple[float, tuple[Process, ...]]]:
        """The rows of one process in each sample from ``begin`` to ``end``; empty where it did not exist."""
        ...

    def events(self) -> Sequence[MachineEvent]:
        """The events, oldest first. The list may grow: do not change it."""
        ...


class Times(Sequence[float]):
    """Times of samples that are looked up when they are asked for."""

    @abstractmethod
    def at(self, place: int) -> float:
        """The time at a place from 0 to the length."""

    @overload
    def __getitem__(self, place: int) -> float: ...

    @overload
    def __getitem__(self, place: slice) -> list[float]: ...

    def __getitem__(self, place: int | slice) -> float | list[float]:
        places = range(len(self))[place]
        return [self.at(one) for one in places] if isinstance(places, range) else self.at(places)
