"""A GPU that NVML lists, with everything that is cached about it."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuwatch.core.model.metrics import Lane
from gpuwatch.core.model.reading import Missing, Value
from gpuwatch.machine.sources.device_source import GpuProcess, MissingReadings, Readings, SourceDevice
from gpuwatch.machine.sources.nvidia import mig, nvml_errors

ProcessList = list[tuple[int, int | None, int, int]]
"""Rows of NVML: pid, bytes, GPU instance, compute instance."""


class NvmlDevice(SourceDevice):
    """A device of the current list."""

    handle: Any = None
    """NVML's handle; None for a device that did not answer when it was listed."""
    permanent: dict[str, Missing] = msgspec.field(default_factory=dict)
    """Metric id to the reason that will not change."""
    kept_readings: dict[Lane, tuple[Readings, MissingReadings]] = msgspec.field(default_factory=dict)
    """The last readings of each lane but the fast one."""
    answers: dict[str, tuple[Any, list[tuple[str, Value | Missing]]]] = msgspec.field(default_factory=dict)
    """Of each call: the last answer, and the readings made of it."""
    last_fast: tuple[Readings, MissingReadings, Readings, MissingReadings] | None = None
    """The last readings of the fast lane, and the same with what is kept of the others."""
    may_sleep: bool = False
    """Whether the kernel may suspend it: then the kernel is asked before NVML, which would wake the device."""
    mig_on: bool | None = None
    """Whether MIG is on; None where the device does not know MIG, or has not been asked."""
    instances: list[mig.ListedInstance] = msgspec.field(default_factory=list)
    """Its MIG instances, as of the last slow sample."""
    process_lists_by_kind: list[tuple[str, ProcessList]] = msgspec.field(default_factory=list)
    """The last lists of processes, by kind."""
    listed_processes: list[GpuProcess] = msgspec.field(default_factory=list)
    """The same, each process once."""
    listed_with_mig: bool = True
    """Whether MIG was on, or unknown, when :attr:`listed_processes` was made."""
    utilization_seen_at: int = 0
    """Microseconds since the epoch of the newest process utilization sample seen."""

    def note_missing(self, lib: Any, code: int, call: str, *names: str) -> Missing:
        """Why ``call`` gave nothing; kept under these names where that will not change."""
        why_missing = nvml_errors.missing_reading(lib, code, call, mig_on=bool(self.mig_on))
        if code in nvml_errors.PERMANENT:
            self.permanent.update(dict.fromkeys(names, why_missing))
        return why_missing

    @property
    def lost(self) -> bool:
        """Whether NVML reported the whole device as lost (``NVML_ERROR_GPU_IS_LOST``, ``_RESET_REQUIRED``)."""
        return self.state in ("lost", "reset-required")
