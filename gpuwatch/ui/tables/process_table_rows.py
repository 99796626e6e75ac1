"""Rows of the process table: processes, and memory that none of them owns; in order and filtered. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpuwatch.core.formatting.units import memory
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.ui.tables.process_columns import Column

RowKey = tuple[str | None, int, float | None]
NOTABLE_UNEXPLAINED_BYTES = 100 * 2**20
"""Bytes below which unexplained memory is ignored: rounding, contexts and the driver's own use."""


@dataclass(frozen=True, slots=True, eq=False)
class UnexplainedMemory:
    """Memory that no listed process owns, summed over devices: one row below the processes."""

    parts: tuple[tuple[Device, float], ...]
    """Devices with a notable amount, in bytes."""
    reason: str

    @property
    def amount(self) -> float:
        """Bytes on all devices."""
        return sum(amount for _, amount in self.parts)

    @property
    def key(self) -> RowKey:
        """A key no process has: pid -1."""
        return ("", -1, None)


Row = Process | UnexplainedMemory


def largest_memory(rows: Iterable[Row]) -> float:
    """The largest amount in the column of GPU memory."""
    held = (row.amount if isinstance(row, UnexplainedMemory) else row.number("gpu_memory_bytes") for row in rows)
    return max((amount or 0.0 for amount in held), default=0.0)


def unexplained_memory(snapshot: Snapshot, device: str | None = None) -> UnexplainedMemory | None:
    """Notable memory that no listed process owns, on one ``device`` (a UUID) or all."""
    parts = tuple(
        (item, amount)
        for item in snapshot.devices
        if device in (None, item.uuid)
        and (amount := item.number("memory.unexplained_bytes")) is not None
        and amount >= NOTABLE_UNEXPLAINED_BYTES
    )
    if not parts:
        return None
    where = ", ".join(f"{memory(amount)} on GPU {device.index}" for device, amount in parts) if len(parts) > 1 else ""
    return UnexplainedMemory(parts, f"not owned by any visible process{f': {where}' if where else ''}")


def table_rows(snapshot: Snapshot, device: str | None = None) -> list[Row]:
    """Processes of one ``device`` (a UUID); or all, with programs on no GPU. And notable memory that nobody owns."""
    rows: list[Row] = [row for row in snapshot.processes if device in (None, row.device_uuid)]
    if device is None:
        rows += snapshot.bystanders
    nobody = unexplained_memory(snapshot, device)
    return [*rows, nobody] if nobody is not None else rows


def sorted_rows(rows: Iterable[Row], column: Column, *, reverse: bool) -> list[Row]:
    """Sorted rows; ties by GPU and pid, unknown values last, then rows that are not processes."""
    base = sorted(rows, key=_tie_breaker)
    values = [(None if isinstance(row, UnexplainedMemory) else column.value_of(row), row) for row in base]
    known = [(value, row) for value, row in values if value is not None]
    if any(isinstance(value, str) for value, _ in known):
        known.sort(key=lambda pair: str(pair[0]).lower(), reverse=reverse)
    else:
        known.sort(key=lambda pair: float(pair[0] or 0), reverse=reverse)
    return [row for _, row in known] + [row for value, row in values if value is None]


def _tie_breaker(row: Row) -> tuple[int, int]:
    if isinstance(row, UnexplainedMemory):
        return (2**31, 2**31)
    return (10**6 if row.device_index is None else row.device_index, row.pid)


def filtered_rows(rows: Sequence[Row], test: Callable[[Process, float], bool] | None, at: float) -> list[Row]:
    """Rows that match a filter at a moment (seconds since the epoch); any filter hides unexplained memory, which is
    not a process.
    """
    if test is None:
        return list(rows)
    return [row for row in rows if isinstance(row, Process) and test(row, at)]
