"""Tables of a recording: their columns and rows, for CSV and Parquet.

A cell is None where a value is missing. Sizes end in ``_bytes``, times in ``_seconds``, percentages in ``_percent``, as
in the documents; points in time are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from gpuwatch.core.model.metrics import METRICS, Unit
from gpuwatch.core.model.snapshot import PROCESS_READINGS, Process
from gpuwatch.core.safe_text import printable
from gpuwatch.machine.history.process_usage import ProcessLife
from gpuwatch.share.exports.exported_period import NUMERIC_METRICS, ExportedPeriod

Row = list[object]


class ColumnType(Enum):
    """What the cells of a column are: CSV and Parquet write them accordingly."""

    TEXT = "text"
    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    TIME = "time"


class Column(NamedTuple):
    """A column; ``unit`` is also the end of its name, unless it is empty."""

    name: str
    type: ColumnType
    unit: str = ""


class Table(NamedTuple):
    """A table: its columns, and its rows in the order of time."""

    columns: tuple[Column, ...]
    rows: Callable[[ExportedPeriod], Iterator[Row]]


_PROCESS_UNITS = {
    "gpu_memory_bytes": "B",
    "host_memory_bytes": "B",
    **dict.fromkeys(("sm_percent", "memory_percent", "encoder_percent", "decoder_percent", "cpu_percent"), "%"),
}


def _columns(column_type: ColumnType, *names: str) -> tuple[Column, ...]:
    return tuple(Column(name, column_type) for name in names)


_TIME_COLUMN = Column("time", ColumnType.TIME)
_HOST_COLUMN = Column("host", ColumnType.TEXT)
_GPU_COLUMNS = (Column("gpu", ColumnType.INTEGER), Column("uuid", ColumnType.TEXT))
_DEVICE_COLUMNS = (
    _TIME_COLUMN,
    _HOST_COLUMN,
    *_GPU_COLUMNS,
    *_columns(ColumnType.TEXT, "name", "state"),
    Column("simulated", ColumnType.BOOLEAN),
)
_PROCESS_COLUMNS = (
    *(Column("pid", ColumnType.INTEGER), Column("create_time", ColumnType.TIME)),
    *_columns(ColumnType.TEXT, "user", "command", "type", "framework", "container", "mig_instance"),
)
_HOST_UNITS = {
    "cpu_percent": "%",
    "cpu_count": "",
    "memory_used_bytes": "B",
    "memory_total_bytes": "B",
    "swap_used_bytes": "B",
    "swap_total_bytes": "B",
    "uptime_seconds": "s",
}
_LIFETIME_UNITS = {"held_seconds": "s", "memory_peak_bytes": "B", "sm_seconds": "s", "sm_percent_max": "%"}


def _printable(value: str | None) -> str | None:
    return None if value is None else printable(value)


def _device_columns(step: int) -> tuple[Column, ...]:
    if step:
        statistics = [
            (
                *(Column(spec.id + end, ColumnType.NUMBER, spec.unit.value) for end in ("_min", "_mean", "_max")),
                Column(f"{spec.id}_samples", ColumnType.INTEGER),
            )
            for spec in NUMERIC_METRICS
        ]
        return (*_DEVICE_COLUMNS, *chain.from_iterable(statistics))
    types = ((spec, ColumnType.TEXT if spec.unit is Unit.NAME else ColumnType.NUMBER) for spec in METRICS)
    return (*_DEVICE_COLUMNS, *(Column(spec.id, column_type, spec.unit.value) for spec, column_type in types))


def _device_rows(period: ExportedPeriod) -> Iterator[Row]:
    ids = [(spec.id, spec.unit is Unit.NAME) for spec in METRICS]
    host = period.host
    for at, snapshot, _ in period.samples():
        for device in snapshot.devices:
            readings = device.readings
            row: Row = [at, host, device.index, device.uuid, device.name, device.state, device.simulated]
            for name, is_name in ids:
                value = readings.get(name)
                # A metric has one type, whatever a damaged file says.
                row.append(value if value is None or (type(value) is str) is is_name else None)
            yield row


def _device_mean_rows(period: ExportedPeriod) -> Iterator[Row]:
    ids = [spec.id for spec in NUMERIC_METRICS]
    host = period.host
    for at, device, metrics in period.means():
        row: Row = [float(at), host, period.index(device.uuid, at), device.uuid, device.name or None]
        row += [None, device.simulated]  # the state is not kept
        for name in ids:
            row += metrics.get(name) or (None, None, None, None)
        yield row


def _process_cells(process: Process | ProcessLife) -> Row:
    """The cells of the columns of its GPU and of :data:`_PROCESS_COLUMNS`."""
    return [
        *(process.device_index, process.device_uuid, process.pid, process.create_time, _printable(process.user)),
        *(_printable(process.command or process.name), process.type, process.framework, process.container),
        process.mig_instance,
    ]


def _process_rows(period: ExportedPeriod) -> Iterator[Row]:
    host = period.host
    for at, snapshot, _ in period.samples():
        for process in snapshot.processes:
            yield [
                *(at, host, *_process_cells(process)),
                # Numbers, whatever a damaged file says.
                *(None if type(value := process.readings.get(name)) is str else value for name in PROCESS_READINGS),
            ]


def _host_rows(period: ExportedPeriod) -> Iterator[Row]:
    host = period.host
    measurements = attrgetter(*_HOST_UNITS)
    for at, snapshot, _ in period.samples():
        yield [at, host, *measurements(snapshot.host), *(snapshot.host.load or (None, None, None))]


def _lifetime_rows(period: ExportedPeriod) -> Iterator[Row]:
    host = period.host
    measurements = attrgetter(*_LIFETIME_UNITS)
    for lifetime in period.process_lifetimes():
        yield [
            *(lifetime.first, lifetime.last, host, *_process_cells(lifetime), *measurements(lifetime)),
            lifetime.sm_percent_seconds / lifetime.sm_seconds if lifetime.sm_seconds else None,
        ]


def _event_rows(period: ExportedPeriod) -> Iterator[Row]:
    host = period.host
    for event in period.events():
        yield [
            *(event.at, host, period.index(event.device_uuid, event.at), event.device_uuid, event.kind),
            *(event.severity, event.certainty, _printable(event.text), event.pid),
            *(event.cause or None, event.occurrence or None),
        ]


def _finding_rows(period: ExportedPeriod) -> Iterator[Row]:
    host = period.host
    for since, until, finding in period.findings():
        yield [
            *(since, until, host, period.index(finding.device_uuid, since), finding.device_uuid, finding.id),
            *(finding.severity, finding.certainty, _printable(finding.title), _printable(" / ".join(finding.evidence))),
            *(_printable(finding.action), finding.pid),
        ]


TABLE_NAMES = ("devices", "processes", "lives", "host", "events", "findings")
"""``lives`` has one row for each process on each GPU, ``processes`` one for each sample of it too."""


def table(name: str, step: int) -> Table:
    """The table of this name; ``step``: seconds of the means, 0 for samples. KeyError for another name."""
    return {
        "devices": Table(_device_columns(step), _device_mean_rows if step else _device_rows),
        "processes": Table(
            (
                *(_TIME_COLUMN, _HOST_COLUMN, *_GPU_COLUMNS, *_PROCESS_COLUMNS),
                *(Column(reading, ColumnType.NUMBER, _PROCESS_UNITS.get(reading, "")) for reading in PROCESS_READINGS),
            ),
            _process_rows,
        ),
        "lives": Table(
            (
                *(*_columns(ColumnType.TIME, "first", "last"), _HOST_COLUMN, *_GPU_COLUMNS, *_PROCESS_COLUMNS),
                *(Column(name, ColumnType.NUMBER, unit) for name, unit in _LIFETIME_UNITS.items()),
                Column("sm_percent_mean", ColumnType.NUMBER, "%"),
            ),
            _lifetime_rows,
        ),
        "host": Table(
            (
                *(_TIME_COLUMN, _HOST_COLUMN),
                *(Column(name, ColumnType.NUMBER, unit) for name, unit in _HOST_UNITS.items()),
                *(Column(f"load_{minutes}min", ColumnType.NUMBER) for minutes in (1, 5, 15)),
            ),
            _host_rows,
        ),
        "events": Table(
            (
                *(_TIME_COLUMN, _HOST_COLUMN, *_GPU_COLUMNS),
                *_columns(ColumnType.TEXT, "kind", "severity", "certainty", "text"),
                Column("pid", ColumnType.INTEGER),
                Column("cause", ColumnType.TEXT),
                Column("occurrence", ColumnType.INTEGER),
            ),
            _event_rows,
        ),
        "findings": Table(
            (
                *(*_columns(ColumnType.TIME, "since", "until"), _HOST_COLUMN, *_GPU_COLUMNS),
                *_columns(ColumnType.TEXT, "cause", "severity", "certainty", "title", "evidence", "action"),
                Column("pid", ColumnType.INTEGER),
            ),
            _finding_rows,
        ),
    }[name]
