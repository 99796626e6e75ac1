"""Snapshots as recordings keep them: secrets masked, and computed numbers without digits that mean nothing.

CPU times have a resolution of ten milliseconds, and rates are differences of counters: CPU percentages are kept to a
tenth, percentages of devices to a hundredth, rates to whole bytes per second, and how long a sample took to a
millisecond. Everything else is kept as it was read.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from gpuwatch.core.formatting.secrets import mask_text
from gpuwatch.core.model.metrics import METRICS, Unit
from gpuwatch.core.model.reading import Value
from gpuwatch.core.model.snapshot import Ancestor, Device, Process, Snapshot

_DIGITS = {Unit.PERCENT: 2, Unit.BYTES_PER_SECOND: 0}
_ROUNDED = {spec.id: _DIGITS[spec.unit] for spec in METRICS if spec.unit in _DIGITS}

_masked = lru_cache(maxsize=4096)(mask_text)


class Storable:
    """Makes snapshots storable, in their order; unchanged parts stay the same objects."""

    def __init__(self) -> None:
        self._devices: tuple[tuple[Device, ...], tuple[Device, ...]] = ((), ())
        self._processes: tuple[tuple[Process, ...], tuple[Process, ...]] = ((), ())
        self._bystanders: tuple[tuple[Process, ...], tuple[Process, ...]] = ((), ())
        self._ancestors: tuple[tuple[Ancestor, ...], tuple[Ancestor, ...]] = ((), ())
        self._rows: dict[int, tuple[Process, Process]] = {}
        """The rows of the last sample, as they came and as they are stored, by identity."""

    def of(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot as it is stored."""
        if snapshot.devices is not self._devices[0]:
            known = dict(zip(map(id, self._devices[0]), self._devices[1], strict=True))
            self._devices = (snapshot.devices, tuple([known.get(id(one)) or _device(one) for one in snapshot.devices]))
        if snapshot.processes is not self._processes[0] or snapshot.bystanders is not self._bystanders[0]:
            rows: dict[int, tuple[Process, Process]] = {}
            self._processes = (snapshot.processes, self._stored(snapshot.processes, rows))
            self._bystanders = (snapshot.bystanders, self._stored(snapshot.bystanders, rows))
            self._rows = rows
        if snapshot.ancestors is not self._ancestors[0]:
            self._ancestors = (snapshot.ancestors, tuple(map(_ancestor, snapshot.ancestors)))
        return replace(
            snapshot,
            took_seconds=round(snapshot.took_seconds, 3),
            devices=self._devices[1],
            processes=self._processes[1],
            bystanders=self._bystanders[1],
            ancestors=self._ancestors[1],
        )

    def _stored(self, given: tuple[Process, ...], rows: dict[int, tuple[Process, Process]]) -> tuple[Process, ...]:
        stored = []
        for row in given:
            known = self._rows.get(id(row)) or (row, _process(row))
            rows[id(row)] = known
            stored.append(known[1])
        return tuple(stored)


def _device(row: Device) -> Device:
    rounded: dict[str, Value] = {
        name: round(value, _ROUNDED[name])
        for name, value in row.readings.items()
        if type(value) is float and name in _ROUNDED
    }
    return replace(row, readings=row.readings | rounded) if rounded else row


def _process(row: Process) -> Process:
    changes: dict[str, Any] = {}
    if row.command and (command := _masked(row.command)) != row.command:
        changes["command"] = command
    if row.workers_cpu_percent is not None:
        changes["workers_cpu_percent"] = round(row.workers_cpu_percent, 1)
    cpu = row.readings.get("cpu_percent")
    if type(cpu) is float:
        changes["readings"] = row.readings | {"cpu_percent": round(cpu, 1)}
    return replace(row, **changes) if changes else row


def _ancestor(one: Ancestor) -> Ancestor:
    return replace(one, command=_masked(one.command)) if one.command else one
