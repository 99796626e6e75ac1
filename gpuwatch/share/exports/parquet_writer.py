"""Parquet: one table of a recording, with typed columns; null is a missing value. Needs pyarrow (extra ``parquet``)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gpuwatch import __version__
from gpuwatch.share.exports.exported_period import ExportedPeriod
from gpuwatch.share.exports.recording_tables import Kind, Row, Table

_GROUP_ROWS = 20_000
_TYPES: dict[Kind, Any] = {
    Kind.TEXT: pa.string(),
    Kind.NUMBER: pa.float64(),
    Kind.WHOLE: pa.int64(),
    Kind.FLAG: pa.bool_(),
    Kind.MOMENT: pa.timestamp("us", tz="UTC"),
}


def write(period: ExportedPeriod, table: Table) -> Iterator[bytes]:
    """The file, in pieces."""
    out = _Sink()
    schema = pa.schema(
        [
            pa.field(column.name, _TYPES[column.kind], metadata={"unit": column.unit} if column.unit else None)
            for column in table.columns
        ],
        metadata={"gpuwatch_version": __version__, "simulated": str(period.last.simulated).lower()},
    )
    moments = [place for place, column in enumerate(table.columns) if column.kind is Kind.MOMENT]
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        rows: list[Row] = []
        for row in table.rows(period):
            for place in moments:
                at = row[place]
                row[place] = round(at * 1e6) if isinstance(at, (int, float)) else None  # microseconds
            rows.append(row)
            if len(rows) >= _GROUP_ROWS:
                writer.write_batch(_batch(rows, schema))
                rows = []
                yield out.take()
        if rows:
            writer.write_batch(_batch(rows, schema))
    yield out.take()


def _batch(rows: list[Row], schema: Any) -> Any:
    columns = zip(*rows, strict=True)
    arrays = [_array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def _array(values: tuple[object, ...], kind: Any) -> Any:
    try:
        return pa.array(values, type=kind)
    except UnicodeEncodeError:  # a name that is not text (PEP 383)
        plain = [
            value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value for value in values
        ]
        return pa.array(plain, type=kind)


class _Sink(io.RawIOBase):
    """A file that is only appended to, and whose content is taken away now and then."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._place = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._place += len(data)
        return len(data)

    def tell(self) -> int:
        return self._place

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data
