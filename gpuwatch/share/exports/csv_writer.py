"""CSV: one table of a recording. An empty cell is a missing value."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from gpuwatch.core.safe_text import safe_cell
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.share.exports.exported_period import ExportedPeriod
from gpuwatch.share.exports.recording_tables import ColumnType, Table

_ROWS_AT_ONCE = 500


def write(period: ExportedPeriod, table: Table) -> Iterator[bytes]:
    """A line of headings, then the rows, in pieces."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    time_indexes = [index for index, column in enumerate(table.columns) if column.type is ColumnType.TIME]
    text_indexes = [
        index for index, column in enumerate(table.columns) if column.type in (ColumnType.TEXT, ColumnType.BOOLEAN)
    ]
    for count, row in enumerate(table.rows(period), 1):
        for index in time_indexes:
            row[index] = _iso_time(row[index])
        for index in text_indexes:
            row[index] = safe_cell(row[index])
        writer.writerow(row)
        if count % _ROWS_AT_ONCE == 0:
            yield out.getvalue().encode("utf-8", "backslashreplace")
            out.seek(0)
            out.truncate()
    yield out.getvalue().encode("utf-8", "backslashreplace")


def _iso_time(at: object) -> str | None:
    if not isinstance(at, (int, float)):
        return None
    try:
        moment = utc_datetime(at)
    except (ValueError, OverflowError, OSError):  # of a damaged file
        return None
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
