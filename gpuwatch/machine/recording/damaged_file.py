"""The rows that are left in a damaged file of a recording, which is read page by page."""

from __future__ import annotations

import mmap
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuwatch.machine.recording.recording_database import MAGIC, TABLES

_PAGE_BYTES = 4096
_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR = 0x0D, 0x0A, 0x02
"""Kinds of pages with rows: leaves of tables with a rowid; leaves and interior pages of tables without one."""
_BTREE_PAGE_KINDS = (1, 5)
"""Kinds of pages, by the pointer map of an auto-vacuum file, that may have rows; others are free or continue a row."""
_MIN_HOUR_KEY = 10**8
"""The smallest key of an hour, in seconds since the epoch; numbers of blocks are lower."""
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)
_TABLES_BY_COLUMN_COUNT = {
    _TABLE_LEAF: {9: "runs", 8: "minutes", 5: "events"},
    _INDEX_LEAF: {7: "findings", 6: "processes", 3: "tiers"},
}
_Row = tuple[int | None, list[Any]]
"""The rowid of a row, if it has one, and its values."""


class DamagedFile:
    """Reads a file that may be damaged anywhere, page by page. :class:`OSError` if it cannot be read.

    SQLite finds rows through pages that hold nothing else; where one of those is lost, all rows below it are, though
    they are there. Here each page is read by itself (https://www.sqlite.org/fileformat2.html),
    also of a truncated file.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
        self._log = _read_log_pages(path.with_name(f"{path.name}-wal"))
        """Pages that are still in the log."""
        self._page_count = max(-(-len(self._data) // _PAGE_BYTES), *self._log, 0)
        self.row_count = 0
        """Rows that were found."""
        self._unread_pages = 0
        """Pages with rows that cannot be read."""

    def database(self) -> sqlite3.Connection:
        """A private database with all rows that were found."""
        db = sqlite3.connect("", isolation_level=None, check_same_thread=False)  # on disk if it is large
        db.executescript(f"BEGIN;{TABLES}")
        for rowid, values in self._all_rows():
            if (table := _find_table(rowid, values)) is not None:
                if rowid is not None:
                    values[0] = rowid
                marks = ",".join("?" * len(values))
                try:
                    self.row_count += db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values).rowcount  # noqa: S608  # a table of ours
                except (sqlite3.Error, OverflowError):
                    self._unread_pages += 1
        db.execute("COMMIT")
        return db

    def describe_damage(self) -> str:
        """Describes the damage that :meth:`database` found."""
        stated = int.from_bytes(self._page(1)[28:32], "big") if self._page_count else 0
        here = len(self._data) // _PAGE_BYTES
        if self._page(1)[:16] != MAGIC:
            return "its header is lost"
        if here < stated < 1 << 30 and not self._log:
            return f"the file ends after {here:,} of {stated:,} pages"
        if self._unread_pages:
            return f"{self._unread_pages:,} of {self._page_count:,} pages cannot be read"
        return "some pages cannot be read"

    def _page(self, number: int) -> bytes:
        return self._log.get(number) or self._data[(number - 1) * _PAGE_BYTES : number * _PAGE_BYTES]

    def _page_kind(self, number: int) -> int:
        """What a page is, by the pointer map that auto-vacuum files have; 0 if that is lost."""
        pages_of_map = _PAGE_BYTES // 5 + 1
        place = (number - 2) // pages_of_map * pages_of_map + 2
        page = self._page(place)
        at = 5 * (number - place - 1)
        return page[at] if 0 <= at < len(page) else 0

    def _all_rows(self) -> Iterator[_Row]:
        pages_of_map = _PAGE_BYTES // 5 + 1
        for number in range(2, self._page_count + 1):
            if (number - 2) % pages_of_map == 0 or (kind := self._page_kind(number)) not in (0, *_BTREE_PAGE_KINDS):
                continue
            page = self._page(number)
            if page[:1] in (b"\x05", b"") or (page[0] not in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR) and not kind):
                continue
            try:
                yield from self._rows_of_page(page)
            except (LookupError, ValueError, struct.error):
                self._unread_pages += 1

    def _rows_of_page(self, page: bytes) -> Iterator[_Row]:
        kind = page[0]
        if kind not in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR):
            raise ValueError(f"page of kind {kind}")
        count = int.from_bytes(page[3:5], "big")
        first = 12 if kind == _INDEX_INTERIOR else 8
        unreadable = 0
        for place in struct.unpack_from(f">{count}H", page, first):
            try:
                yield self._read_row(page, kind, place)
            except (LookupError, ValueError, struct.error):
                unreadable = 1
        self._unread_pages += unreadable

    def _read_row(self, page: bytes, kind: int, at: int) -> _Row:
        rowid = None
        length, at = _varint(page, at + 4 if kind == _INDEX_INTERIOR else at)
        if kind == _TABLE_LEAF:
            rowid, at = _varint(page, at)
        max_local_bytes = _PAGE_BYTES - 35 if kind == _TABLE_LEAF else (_PAGE_BYTES - 12) * 64 // 255 - 23
        if length <= max_local_bytes:
            return rowid, _record_values(page[at : at + length])
        min_local_bytes = (_PAGE_BYTES - 12) * 32 // 255 - 23
        local_bytes = min_local_bytes + (length - min_local_bytes) % (_PAGE_BYTES - 4)
        local_bytes = local_bytes if local_bytes <= max_local_bytes else min_local_bytes
        parts, left = [page[at : at + local_bytes]], length - local_bytes
        next_page = int.from_bytes(page[at + local_bytes : at + local_bytes + 4], "big")
        while left > 0 and 1 < next_page <= self._page_count:
            more = self._page(next_page)
            parts.append(more[4 : 4 + min(left, _PAGE_BYTES - 4)])
            left -= _PAGE_BYTES - 4
            next_page = int.from_bytes(more[:4], "big")
        return rowid, _record_values(b"".join(parts))  # a part that is missing is found by the row's checksum


def _read_log_pages(path: Path) -> dict[int, bytes]:
    """The pages of a write-ahead log up to its last commit."""
    pages: dict[int, bytes] = {}
    try:
        data = path.read_bytes()
    except OSError:
        return pages
    uncommitted: dict[int, bytes] = {}
    for at in range(32, len(data) - 24 - _PAGE_BYTES + 1, 24 + _PAGE_BYTES):
        number, size = struct.unpack_from(">II", data, at)
        if data[at + 8 : at + 16] != data[16:24]:  # of an earlier log
            break
        uncommitted[number] = data[at + 24 : at + 24 + _PAGE_BYTES]
        if size:
            pages |= uncommitted
            uncommitted = {}
    return pages


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer of SQLite, and the place after it."""
    value = 0
    for place in range(8):
        byte = data[at + place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + place + 1
    return value << 8 | data[at + 8], at + 9


def _record_values(record: bytes) -> list[Any]:
    """The values of a record in SQLite's format. ValueError if it is truncated."""
    end, at = _varint(record, 0)
    kinds = []
    while at < end:
        kind, at = _varint(record, at)
        kinds.append(kind)
    values: list[Any] = []
    for kind in kinds:
        size = _INTEGER_BYTES[kind] if kind < 7 else 8 if kind == 7 else 0 if kind < 12 else (kind - 12) // 2
        data, end = record[end : end + size], end + size
        if kind < 12 and len(data) < size:
            raise ValueError("truncated")
        if kind == 0:
            values.append(None)
        elif kind < 7:
            values.append(int.from_bytes(data, "big", signed=True))
        elif kind == 7:
            values.append(struct.unpack(">d", data)[0])
        elif kind in (8, 9):
            values.append(kind - 8)
        else:
            values.append(data.decode() if kind % 2 else data)
    return values


def _find_table(rowid: int | None, values: list[Any]) -> str | None:
    """The table that a row is of, by its columns; None for those of indices and unknown ones."""
    if rowid is None:
        if len(values) == 2 and isinstance(values[0], str):
            return "notes"
        return _TABLES_BY_COLUMN_COUNT[_INDEX_LEAF].get(len(values))
    if len(values) == 4:
        return "open_frames" if isinstance(values[3], bytes) else None  # older files have clocks
    if len(values) == 2:
        return "gpu_time" if rowid > _MIN_HOUR_KEY else "data"
    return _TABLES_BY_COLUMN_COUNT[_TABLE_LEAF].get(len(values))
