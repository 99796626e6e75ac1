"""Parquet: one table of a recording, with typed columns; null is a missing value. Needs pyarrow (extra ``parquet``)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gpuwatch import __version__
from gpuwatch.share.exports.exported_period import ExportedPeriod
from gpuwatch.share.exports.recording_tables import ColumnType, Row, Table

_GROUP_ROWS = 20_000
_ARROW_TYPES: dict[ColumnType, Any] = {
    ColumnType.TEXT: pa.string(),
    ColumnType.NUMBER: pa.float64(),
    ColumnType.INTEGER: pa.int64(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.TIME: pa.timestamp("us", tz="UTC"),
}


def write(period: ExportedPeriod, table: Table) -> Iterator[bytes]:
    """The file, in pieces."""
    out = _PieceCollector()
    schema = pa.schema(
        [
            pa.field(column.name, _ARROW_TYPES[column.type], metadata={"unit": column.unit} if column.unit else None)
            for column in table.columns
        ],
        metadata={"gpuwatch_version": __version__, "simulated": str(period.last.simulated).lower()},
    )
    time_indexes = [index for index, column in enumerate(table.columns) if column.type is ColumnType.TIME]
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        rows: list[Row] = []
        for row in table.rows(period):
            for index in time_indexes:
                at = row[index]
                row[index] = round(at * 1e6) if isinstance(at, (int, float)) else None  # microseconds
            rows.append(row)
            if len(rows) >= _GROUP_ROWS:
                writer.write_batch(_batch(rows, schema))
                rows = []
                yield out.take_pieces()
        if rows:
            writer.write_batch(_batch(rows, schema))
    yield out.take_pieces()


def _batch(rows: list[Row], schema: Any) -> Any:
    columns = zip(*rows, strict=True)
    arrays = [_array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def _array(values: tuple[object, ...], arrow_type: Any) -> Any:
    try:
        return pa.array(values, type=arrow_type)
    except UnicodeEncodeError:  # a name that is not text (PEP 383)
        encodable = [
            value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value for value in values
        ]
        return pa.array(encodable, type=arrow_type)


class _PieceCollector(io.RawIOBase):
    """A file that is only appended to, and whose content is taken away now and then."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def take_pieces(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data
