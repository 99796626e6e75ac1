"""What is asked of kept samples, wherever they are kept: in memory, or in a recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

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
    """Samples and events of one host. Times are seconds since the epoch."""

    @property
    def times(self) -> Sequence[float]:
        """When the samples were taken, oldest first."""
        ...

    def at(self, moment: float) -> Kept | None:
        """The last sample not later than ``moment``, the first one where all are later; None without any."""
        ...

    def history(self, end: float, seconds: float, metrics: frozenset[str]) -> History:
        """These metrics of the devices over the ``seconds`` up to ``end``."""
        ...

    def process(self, who: Identity, begin: float, end: float) -> Iterator[tuple[float, tuple[Process, ...]]]:
        """The rows of one process at each sample from ``begin`` to ``end``; none where it was not there."""
        ...

    def events(self) -> Sequence[MachineEvent]:
        """What happened, oldest first. It may go on growing: do not change it."""
        ...
