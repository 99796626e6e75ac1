"""Reads the rows that are left of a damaged database file, page by page (https://www.sqlite.org/fileformat2.html).

SQLite finds rows through pages that hold nothing else; where one of those is lost, all rows below it are, though they
are there. Here each page is read by itself, also of a truncated file.
"""

from __future__ import annotations

import mmap
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuwatch.machine.recording.recording_database import MAGIC, TABLES

_PAGE_BYTES = 4096
_LEAF, _ROWS, _ROWS_ABOVE = 0x0D, 0x0A, 0x02
"""Kinds of pages with rows: those of tables with a rowid; of tables without one, which have rows in all pages."""
_BTREE_PAGE_KINDS = (1, 5)
"""Kinds of pages, by the map of an auto-vacuum file, that may have rows; the others are free, or continue a row."""
_MIN_HOUR_KEY = 10**8
"""The smallest key of an hour, in seconds since the epoch; numbers of blocks are lower."""
_INTEGERS = (0, 1, 2, 3, 4, 6, 8)
_BY_COLUMNS = {
    _LEAF: {9: "runs", 8: "minutes", 5: "events"},
    _ROWS: {7: "findings", 6: "processes", 3: "tiers"},
}
_Row = tuple[int | None, list[Any]]
"""Its rowid, if it has one, and its values."""


class Salvage:
    """Reads a file that may be damaged anywhere. :class:`OSError` if it cannot be read."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
        self._newer = _log_pages(path.with_name(f"{path.name}-wal"))
        """Pages that are still in the log."""
        self._pages = max(-(-len(self._data) // _PAGE_BYTES), *self._newer, 0)
        self.rows = 0
        """Rows that were found."""
        self._unread = 0
        """Pages with rows that cannot be read."""

    def database(self) -> sqlite3.Connection:
        """A private database with all rows that were found."""
        db = sqlite3.connect("", isolation_level=None, check_same_thread=False)  # on disk if it is large
        db.executescript(f"BEGIN;{TABLES}")
        for rowid, values in self._rows():
            if (table := _table_of(rowid, values)) is not None:
                if rowid is not None:
                    values[0] = rowid
                marks = ",".join("?" * len(values))
                try:
                    self.rows += db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values).rowcount  # noqa: S608  # a table of ours
                except (sqlite3.Error, OverflowError):
                    self._unread += 1
        db.execute("COMMIT")
        return db

    def why(self) -> str:
        """Describes the damage that :meth:`database` found."""
        stated = int.from_bytes(self._page(1)[28:32], "big") if self._pages else 0
        here = len(self._data) // _PAGE_BYTES
        if self._page(1)[:16] != MAGIC:
            return "its header is lost"
        if here < stated < 1 << 30 and not self._newer:
            return f"the file ends after {here:,} of {stated:,} pages"
        if self._unread:
            return f"{self._unread:,} of {self._pages:,} pages cannot be read"
        return "some pages cannot be read"

    def _page(self, number: int) -> bytes:
        return self._newer.get(number) or self._data[(number - 1) * _PAGE_BYTES : number * _PAGE_BYTES]

    def _kind(self, number: int) -> int:
        """What a page is, by the map that auto-vacuum files have; 0 if that is lost."""
        each = _PAGE_BYTES // 5 + 1
        place = (number - 2) // each * each + 2
        page = self._page(place)
        at = 5 * (number - place - 1)
        return page[at] if 0 <= at < len(page) else 0

    def _rows(self) -> Iterator[_Row]:
        each = _PAGE_BYTES // 5 + 1
        for number in range(2, self._pages + 1):
            if (number - 2) % each == 0 or (kind := self._kind(number)) not in (0, *_BTREE_PAGE_KINDS):
                continue
            page = self._page(number)
            if page[:1] in (b"\x05", b"") or (page[0] not in (_LEAF, _ROWS, _ROWS_ABOVE) and not kind):
                continue
            try:
                yield from self._rows_of(page)
            except (LookupError, ValueError, struct.error):
                self._unread += 1

    def _rows_of(self, page: bytes) -> Iterator[_Row]:
        kind = page[0]
        if kind not in (_LEAF, _ROWS, _ROWS_ABOVE):
            raise ValueError(f"page of kind {kind}")
        count = int.from_bytes(page[3:5], "big")
        first = 12 if kind == _ROWS_ABOVE else 8
        bad = 0
        for place in struct.unpack_from(f">{count}H", page, first):
            try:
                yield self._row(page, kind, place)
            except (LookupError, ValueError, struct.error):
                bad = 1
        self._unread += bad

    def _row(self, page: bytes, kind: int, at: int) -> _Row:
        rowid = None
        length, at = _varint(page, at + 4 if kind == _ROWS_ABOVE else at)
        if kind == _LEAF:
            rowid, at = _varint(page, at)
        most = _PAGE_BYTES - 35 if kind == _LEAF else (_PAGE_BYTES - 12) * 64 // 255 - 23
        if length <= most:
            return rowid, _record_values(page[at : at + length])
        least = (_PAGE_BYTES - 12) * 32 // 255 - 23
        local = least + (length - least) % (_PAGE_BYTES - 4)
        local = local if local <= most else least
        parts, left = [page[at : at + local]], length - local
        following = int.from_bytes(page[at + local : at + local + 4], "big")
        while left > 0 and 1 < following <= self._pages:
            more = self._page(following)
            parts.append(more[4 : 4 + min(left, _PAGE_BYTES - 4)])
            left -= _PAGE_BYTES - 4
            following = int.from_bytes(more[:4], "big")
        return rowid, _record_values(b"".join(parts))  # a part that is missing is found by the row's checksum


def _log_pages(path: Path) -> dict[int, bytes]:
    """The pages of a write-ahead log up to its last commit."""
    pages: dict[int, bytes] = {}
    try:
        data = path.read_bytes()
    except OSError:
        return pages
    open_: dict[int, bytes] = {}
    for at in range(32, len(data) - 24 - _PAGE_BYTES + 1, 24 + _PAGE_BYTES):
        number, size = struct.unpack_from(">II", data, at)
        if data[at + 8 : at + 16] != data[16:24]:  # of an earlier log
            break
        open_[number] = data[at + 24 : at + 24 + _PAGE_BYTES]
        if size:
            pages |= open_
            open_ = {}
    return pages


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(8):
        byte = data[at + place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + place + 1
    return value << 8 | data[at + 8], at + 9


def _record_values(record: bytes) -> list[Any]:
    end, at = _varint(record, 0)
    kinds = []
    while at < end:
        kind, at = _varint(record, at)
        kinds.append(kind)
    values: list[Any] = []
    for kind in kinds:
        size = _INTEGERS[kind] if kind < 7 else 8 if kind == 7 else 0 if kind < 12 else (kind - 12) // 2
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


def _table_of(rowid: int | None, values: list[Any]) -> str | None:
    """The table that a row is of, by its columns; None for those of indices and unknown ones."""
    if rowid is None:
        if len(values) == 2 and isinstance(values[0], str):
            return "notes"
        return _BY_COLUMNS[_ROWS].get(len(values))
    if len(values) == 4:
        return "open_frames" if isinstance(values[3], bytes) else None  # older files have clocks
    if len(values) == 2:
        return "gpu_time" if rowid > _MIN_HOUR_KEY else "data"
    return _BY_COLUMNS[_LEAF].get(len(values))
