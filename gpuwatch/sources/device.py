"""What is known of a device between one question and the next."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuwatch.model.metrics import Lane
from gpuwatch.model.reading import Missing, Value
from gpuwatch.model.xids import Xid
from gpuwatch.sources import mig
from gpuwatch.sources.answers import GpuProcess

ASLEEP = "asleep"
"""State of a device that the kernel has suspended."""
ProcessList = list[tuple[int, int | None, int, int]]
"""Rows of NVML: pid, bytes, GPU instance, compute instance."""


class NvmlDevice(msgspec.Struct):
    """A device of the current list, with what was learnt about it."""

    index: int
    handle: Any
    uuid: str
    name: str
    pci_bus_id: str
    compute_capability: str | None
    state: str = "ok"
    state_detail: str = ""
    permanent: dict[str, Missing] = {}
    """Metric id to the reason that will not change."""
    kept: dict[Lane, tuple[dict[str, Value], dict[str, Missing]]] = {}
    """What the lanes other than the fast one answered when they were last asked."""
    answers: dict[str, tuple[int, tuple[tuple[str, Value | Missing], ...]]] = {}
    """Of each call that answered with a number: that, and what was made of it."""
    told: tuple[dict[str, Value], dict[str, Missing], dict[str, Value], dict[str, Missing]] | None = None
    """What the fast lane answered last, and that with what is kept of the others."""
    slow_at: float = 0.0
    """When the slow lane was read, on the monotonic clock: rates divide by it."""
    may_sleep: bool = False
    """Whether the kernel may suspend it: then it is asked for before NVML is, which would wake the device."""
    mig_on: bool | None = None
    """Whether MIG is on; None where the device does not know MIG, or has not been asked."""
    instances: list[mig.Instance] = []
    """Its MIG instances, as they were at the last look."""
    lists: list[tuple[str, ProcessList]] = []
    """Its lists of processes as they were last told, by kind."""
    listed: list[GpuProcess] = []
    """The same, a process once."""
    xids: tuple[Xid, ...] = ()
    """The latest errors that the driver reported of it."""
    xids_missing: Missing | None = None
    """Why none can be heard."""
    last_utilization: int = 0
    """Microseconds since the epoch of the newest process utilization sample seen."""
