"""Tables of a recording: their columns and rows, for CSV and Parquet.

A cell is None where a value is missing. Sizes end in ``_bytes``, times in ``_seconds``, percentages in ``_percent``, as
in the documents; moments are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from gpuwatch.core.model.metrics import METRICS, Unit
from gpuwatch.core.model.snapshot import PROCESS_READINGS
from gpuwatch.core.safe_text import printable
from gpuwatch.share.exports.exported_period import NUMBERS, ExportedPeriod

Row = list[object]


class Kind(Enum):
    """Type of a column."""

    TEXT = "text"
    NUMBER = "number"
    WHOLE = "whole"
    FLAG = "flag"
    MOMENT = "moment"


class Column(NamedTuple):
    """A column; ``unit`` is in its name too, except for what has none."""

    name: str
    kind: Kind
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


def _texts(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, Kind.TEXT) for name in names)


_AT = Column("time", Kind.MOMENT)
_HOST = Column("host", Kind.TEXT)
_GPU = (Column("gpu", Kind.WHOLE), Column("uuid", Kind.TEXT))
_DEVICE = (_AT, _HOST, *_GPU, *_texts("name", "state"), Column("simulated", Kind.FLAG))
_PROCESS = (
    *(Column("pid", Kind.WHOLE), Column("create_time", Kind.MOMENT)),
    *_texts("user", "command", "type", "framework", "container", "mig_instance"),
)
_HOST_NUMBERS = {
    "cpu_percent": "%",
    "cpu_count": "",
    "memory_used_bytes": "B",
    "memory_total_bytes": "B",
    "swap_used_bytes": "B",
    "swap_total_bytes": "B",
    "uptime_seconds": "s",
}
_LIFE_NUMBERS = {"held_seconds": "s", "memory_peak_bytes": "B", "sm_seconds": "s", "sm_percent_max": "%"}


def _text(value: str | None) -> str | None:
    return None if value is None else printable(value)


def _device_columns(step: int) -> tuple[Column, ...]:
    if step:
        statistics = [
            (*(Column(f"{spec.id}{part}", Kind.NUMBER, spec.unit.value) for part in ("_min", "_mean", "_max")),
             Column(f"{spec.id}_samples", Kind.WHOLE))
            for spec in NUMBERS
        ]  # fmt: skip
        return (*_DEVICE, *chain.from_iterable(statistics))
    kinds = ((spec, Kind.TEXT if spec.unit is Unit.NAME else Kind.NUMBER) for spec in METRICS)
    return (*_DEVICE, *(Column(spec.id, kind, spec.unit.value) for spec, kind in kinds))


def _devices(period: ExportedPeriod) -> Iterator[Row]:
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


def _device_means(period: ExportedPeriod) -> Iterator[Row]:
    ids = [spec.id for spec in NUMBERS]
    host = period.host
    for at, device, metrics in period.means():
        row: Row = [float(at), host, period.index(device.uuid, at), device.uuid, device.name or None]
        row += [None, device.simulated]  # the state is not kept
        for name in ids:
            row += metrics.get(name) or (None, None, None, None)
        yield row


def _processes(period: ExportedPeriod) -> Iterator[Row]:
    host = period.host
    for at, snapshot, _ in period.samples():
        for row in snapshot.processes:
            yield [
                *(at, host, row.device_index, row.device_uuid, row.pid, row.create_time, _text(row.user)),
                *(_text(row.command or row.name), row.type, row.framework, row.container, row.mig_instance),
                # Numbers, whatever a damaged file says.
                *(None if type(value := row.readings.get(name)) is str else value for name in PROCESS_READINGS),
            ]


def _host(period: ExportedPeriod) -> Iterator[Row]:
    host = period.host
    measured = attrgetter(*_HOST_NUMBERS)
    for at, snapshot, _ in period.samples():
        yield [at, host, *measured(snapshot.host), *(snapshot.host.load or (None, None, None))]


def _lives(period: ExportedPeriod) -> Iterator[Row]:
    host = period.host
    measured = attrgetter(*_LIFE_NUMBERS)
    for life in period.lives():
        yield [
            *(life.first, life.last, host, life.device_index, life.device_uuid),
            *(life.pid, life.create_time, _text(life.user)),
            *(_text(life.command or life.name), life.type, life.framework, life.container, life.mig_instance),
            *measured(life),
            life.sm_percent_seconds / life.sm_seconds if life.sm_seconds else None,
        ]


def _events(period: ExportedPeriod) -> Iterator[Row]:
    host = period.host
    for event in period.events():
        yield [
            *(event.at, host, period.index(event.device_uuid, event.at), event.device_uuid, event.kind),
            *(event.severity, event.certainty, _text(event.text), event.pid),
            *(event.cause or None, event.occurrence or None),
        ]


def _findings(period: ExportedPeriod) -> Iterator[Row]:
    host = period.host
    for since, until, finding in period.findings():
        yield [
            *(since, until, host, period.index(finding.device_uuid, since), finding.device_uuid, finding.id),
            *(finding.severity, finding.certainty, _text(finding.title), _text(" / ".join(finding.evidence))),
            *(_text(finding.action), finding.pid),
        ]


NAMES = ("devices", "processes", "lives", "host", "events", "findings")
"""``lives`` has one row for each process on each GPU, ``processes`` one for each sample of it too."""


def table(name: str, step: int) -> Table:
    """The table of this name; ``step``: seconds of the means, 0 for samples. KeyError for another name."""
    return {
        "devices": Table(_device_columns(step), _device_means if step else _devices),
        "processes": Table(
            (
                *(_AT, _HOST, *_GPU, *_PROCESS),
                *(Column(reading, Kind.NUMBER, _PROCESS_UNITS.get(reading, "")) for reading in PROCESS_READINGS),
            ),
            _processes,
        ),
        "lives": Table(
            (
                *(Column("first", Kind.MOMENT), Column("last", Kind.MOMENT), _HOST, *_GPU, *_PROCESS),
                *(Column(text, Kind.NUMBER, unit) for text, unit in _LIFE_NUMBERS.items()),
                Column("sm_percent_mean", Kind.NUMBER, "%"),
            ),
            _lives,
        ),
        "host": Table(
            (
                *(_AT, _HOST),
                *(Column(text, Kind.NUMBER, unit) for text, unit in _HOST_NUMBERS.items()),
                *(Column(f"load_{minutes}min", Kind.NUMBER) for minutes in (1, 5, 15)),
            ),
            _host,
        ),
        "events": Table(
            (
                *(_AT, _HOST, *_GPU, *_texts("kind", "severity", "certainty", "text")),
                *(Column("pid", Kind.WHOLE), Column("cause", Kind.TEXT), Column("occurrence", Kind.WHOLE)),
            ),
            _events,
        ),
        "findings": Table(
            (
                *(Column("since", Kind.MOMENT), Column("until", Kind.MOMENT), _HOST, *_GPU),
                *_texts("cause", "severity", "certainty", "title", "evidence", "action"),
                Column("pid", Kind.WHOLE),
            ),
            _findings,
        ),
    }[name]
