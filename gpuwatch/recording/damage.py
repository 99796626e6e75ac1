"""What of a damaged file can still be read: blocks, entries and rows that are broken are left out."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from gpuwatch.recording.columns import unpack
from gpuwatch.recording.minute_blocks import DamagedMinute, Minute
from gpuwatch.recording.storage import DATABASE_ERRORS, unreadable

TIMES = 256
"""Blocks whose times are kept."""
_DECODED = 12
"""Blocks that are kept decoded."""
_FURTHEST = 1e11
"""Seconds since the epoch: some thousand years."""
_MOST_SAMPLES = 100_000
"""Samples of a block; more are damage."""

_T = TypeVar("_T")
_R = TypeVar("_R")


class SealedBlocks:
    """The sealed blocks of a file. One that is damaged is left out and counted; the others are still read."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self.damaged: set[int] = set()
        """Numbers of blocks that could not be read."""
        self._db, self._path = db, path
        self._minutes: OrderedDict[int, Minute] = OrderedDict()
        self._times: OrderedDict[int, list[float]] = OrderedDict()

    def times(self, number: int) -> list[float]:
        """Times of its samples; those of a damaged block are spread over its time. Empty if it was deleted."""
        known = self._times.get(number)
        if known is None:
            try:
                query = "SELECT begin, end, samples, times FROM minutes WHERE id = ?"
                rows = self._db.execute(query, (number,)).fetchall()
            except DATABASE_ERRORS as error:
                raise unreadable(self._path, error) from error
            known = self._decoded_times(number, *rows[0]) if rows else []
            self._times[number] = known
            if len(self._times) > TIMES:
                self._times.popitem(last=False)
        return known

    def _decoded_times(self, number: int, begin: float, end: float, samples: int, data: bytes) -> list[float]:
        try:
            return list(unpack(msgspec.msgpack.decode(data), samples))
        except (ValueError, TypeError):  # of msgspec too
            self.damaged.add(number)
        try:
            minute = self.minute(number)
            if minute is not None and minute.samples == samples:
                return minute.times
        except DamagedMinute:
            self.damage(number)
        return [begin + (end - begin) * place / max(samples - 1, 1) for place in range(samples)]

    def minute(self, number: int) -> Minute | None:
        """A block; None if it is damaged, or was deleted because of the limits."""
        known = self._minutes.get(number)
        if known is not None:
            self._minutes.move_to_end(number)
            return known
        try:
            rows = self._db.execute("SELECT block FROM data WHERE id = ?", (number,)).fetchall()
        except DATABASE_ERRORS:  # a page of this block alone, perhaps; others are still read
            self.damage(number)
            return None
        if not rows:
            return None
        try:
            known = self._minutes[number] = Minute(rows[0][0])
        except DamagedMinute:
            self.damage(number)
            return None
        if len(self._minutes) > _DECODED:
            self._minutes.popitem(last=False)
        return known

    def damage(self, number: int) -> None:
        """Notes that a block cannot be read."""
        self.damaged.add(number)
        self._minutes.pop(number, None)


def is_block(number: object, begin: object, end: object, samples: object) -> bool:
    """Whether the entry of a block can be one; a damaged file may have anything."""
    return (
        isinstance(begin, float)
        and isinstance(end, float)
        and isinstance(samples, int)
        and -_FURTHEST < begin <= end < _FURTHEST
        and 0 < samples <= _MOST_SAMPLES
    )


def readable(decode: Callable[[_R], _T], rows: Iterable[_R]) -> Iterator[_T]:
    """The rows that are not damaged; ``record check`` reports the others."""
    for data in rows:
        with suppress(ValueError, TypeError):
            yield decode(data)
