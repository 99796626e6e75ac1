"""Snapshots as recordings keep them: secrets masked, and no digits that mean nothing."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from gpuwatch.core.masking.mask_secrets import mask_text
from gpuwatch.core.model.metrics import METRICS, Unit
from gpuwatch.core.model.reading import Value
from gpuwatch.core.model.snapshot import Ancestor, Device, Process, Snapshot
from gpuwatch.machine.history.reused_objects import MappedRows

_DIGITS = {Unit.PERCENT: 2, Unit.BYTES_PER_SECOND: 0}
_DIGITS_BY_METRIC = {spec.id: _DIGITS[spec.unit] for spec in METRICS if spec.unit in _DIGITS}
_masked = lru_cache(maxsize=4096)(mask_text)


class StorableSnapshots:
    """Snapshots as recordings keep them: secrets masked, and computed numbers without digits that mean nothing.

    CPU times have a resolution of ten milliseconds, and rates are differences of counters: CPU percentages are kept to
    a tenth, percentages of devices to a hundredth, rates to whole bytes per second, and how long a sample took to a
    millisecond. Everything else is kept as it was read. Unchanged parts stay the same objects.
    """

    def __init__(self) -> None:
        self._devices = MappedRows(_rounded_device)
        self._processes = MappedRows(_storable_process)
        self._bystanders = MappedRows(_storable_process)
        self._ancestors: MappedRows[Ancestor] = MappedRows(
            lambda row: replace(row, command=row.command and _masked(row.command))
        )

    def of(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot as it is stored."""
        return replace(
            snapshot,
            took_seconds=round(snapshot.took_seconds, 3),
            devices=self._devices.made_of(snapshot.devices),
            processes=self._processes.made_of(snapshot.processes),
            bystanders=self._bystanders.made_of(snapshot.bystanders),
            ancestors=self._ancestors.made_of(snapshot.ancestors),
        )


def _rounded_device(row: Device) -> Device:
    rounded: dict[str, Value] = {
        name: round(value, _DIGITS_BY_METRIC[name])
        for name, value in row.readings.items()
        if type(value) is float and name in _DIGITS_BY_METRIC
    }
    return replace(row, readings=row.readings | rounded) if rounded else row


def _storable_process(row: Process) -> Process:
    changes: dict[str, Any] = {}
    if row.command and (command := _masked(row.command)) != row.command:
        changes["command"] = command
    if row.workers_cpu_percent is not None:
        changes["workers_cpu_percent"] = round(row.workers_cpu_percent, 1)
    cpu = row.readings.get("cpu_percent")
    if type(cpu) is float:
        changes["readings"] = row.readings | {"cpu_percent": round(cpu, 1)}
    return replace(row, **changes) if changes else row
