"""What a kind of GPU has to offer to be watched: one class, a :class:`DeviceSource`.

To add a kind: a class with these methods, and its place in ``device_sources`` of the collector.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from gpuwatch.core.model.metrics import Lane
from gpuwatch.core.model.reading import Missing, Value
from gpuwatch.core.model.snapshot import AccountedProcess, Driver, MigInstance, Problem, Topology
from gpuwatch.core.model.xids import Xid


class SourceUnavailable(Exception):
    """The source cannot be used now; ``problem`` says why and what helps."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


NO_EARLIER_SAMPLE = Missing("no_sample", detail="needs two samples; this is the first")
MAX_XIDS = 8
"""The latest Xids of each device that are kept."""


class SeenDevice(msgspec.Struct):
    """A device that a collector identified: one that does not answer any more is still the same device for the next."""

    index: int
    uuid: str
    name: str
    pci_bus_id: str
    compute_capability: str | None = None
    state: str = "ok"
    """``ok``, ``lost``, ``reset-required``, ``failed`` or ``asleep``."""
    xids: tuple[Xid, ...] = ()
    """The latest errors that the driver reported: each only once."""


class SourceDevice(SeenDevice):
    """A device of the source's current list. A source derives from it to keep more."""

    state_detail: str = ""
    counters_at: float = 0.0
    """When :attr:`Lane.SLOW` was last read, on the monotonic clock: rates divide by it. 0 before."""
    mig_instances: tuple[MigInstance, ...] = ()
    """Its partitions, as of the last :meth:`DeviceSource.sample`."""
    xids_missing: Missing | None = None
    """Why errors are not reported."""
    accounted: tuple[AccountedProcess, ...] = ()
    """The latest processes that ended, if the driver keeps account of them."""


class GpuProcess(msgspec.Struct, frozen=True):
    """A process that uses a device."""

    pid: int
    kind: str
    """``C`` compute, ``G`` graphics, ``C+G``, or ``M`` for a client of MPS."""
    used_bytes: int | None
    """Device memory that it holds; None where the driver does not report it."""
    mig_instance: str | None = None


class Utilization(msgspec.Struct, frozen=True):
    """Newest utilization of one process, in percent."""

    sm: int
    memory: int
    encoder: int
    decoder: int


Readings = dict[str, Value]
"""Value by metric id (:data:`gpuwatch.core.model.metrics.METRICS`), in the unit of the metric."""
MissingReadings = dict[str, Missing]
"""The reason by metric id, for each metric that was asked for and could not be read."""

D = TypeVar("D", bound=SourceDevice)


class DeviceSource(Protocol[D]):
    """GPUs of one kind. Only :meth:`open` and :meth:`refresh` raise, and only :class:`SourceUnavailable`.

    A call may block while the driver hangs: sources live in the collector's process, which can be replaced.
    """

    name: str
    """As problems are labelled: ``nvml``."""

    @property
    def devices(self) -> Sequence[D]:
        """Those of the last :meth:`open` or :meth:`refresh`."""

    driver: Driver | None
    """None until :meth:`open` has succeeded once."""
    simulated: bool
    """Whether gpuwatch's simulated library answers."""

    @property
    def unsettled(self) -> bool:
        """Whether :meth:`refresh` is due before its time: the driver ended the session, or a device woke up."""

    @property
    def problems(self) -> Sequence[Problem]:
        """What the user must know although the source answers."""

    def open(self) -> None:
        """Connects to the driver and lists the devices; does nothing where that is done."""

    def refresh(self) -> None:
        """Renews the list of devices, and the connection where it was lost. Called about every five seconds."""

    def sample(self, device: D, lanes: Collection[Lane]) -> tuple[Readings, MissingReadings]:
        """Reads the metrics of ``lanes``; those of other lanes are repeated as they were last read.

        Where nothing has changed since the call before, it returns the same two objects: do not change them.
        """

    def processes(self, device: D) -> tuple[Sequence[GpuProcess], Sequence[Missing]] | None:
        """Who uses the device, and why a part of the list could not be read; None for a device that does not answer.

        Where nothing has changed, the list is the same object.
        """

    def utilization(self, device: D) -> tuple[Mapping[int, Utilization], Missing | None]:
        """The newest utilization of processes since the last call, by pid; beside it why there is none."""

    def topology(self) -> Topology:
        """How the devices are connected; the same object while that does not change."""

    def close(self) -> None: ...
