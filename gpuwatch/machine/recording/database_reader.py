"""The rows of a recording's file, by SQLite; of a damaged file those that are left of it, and what cannot be read."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.machine.recording.damaged_file import DamagedFile
from gpuwatch.machine.recording.recording_database import (
    DATABASE_ERRORS,
    SUFFIX,
    NotARecording,
    Unreadable,
    open_to_read,
    unreadable_error,
)
from gpuwatch.machine.recording.time_expressions import time_text

_T = TypeVar("_T")
_R = TypeVar("_R")


class DamagedBlock(NamedTuple):
    """A block that cannot be read, as far as its entry can."""

    begin: float
    """Seconds since the epoch; 0 if that is unknown."""
    end: float
    samples: int
    """0: unknown."""
    why: str


_PLURALS = {
    **{kind: f"{kind}s" for kind in ("run", "mean", "event", "finding")},
    **{"hour of GPU time": "hours of GPU time", "process": "processes", "entry": "entries"},
}


class Damage:
    """Damage found so far in one recording."""

    def __init__(self) -> None:
        self.database = ""
        """Damage of the database itself; empty if there is none."""
        self.blocks: dict[int, DamagedBlock] = {}
        """By number."""
        self.rows: dict[str, dict[object, str]] = {}
        """Why rows cannot be read, by kind (``event``, ``mean``) and key."""

    def __bool__(self) -> bool:
        return bool(self.database or self.blocks or self.rows)

    @property
    def samples(self) -> int:
        """Samples of the blocks whose entries can be read."""
        return sum(block.samples for block in self.blocks.values())

    def readable(self, kind: str, decode: Callable[[_R], _T], rows: Iterable[tuple[object, _R]]) -> Iterator[_T]:
        """The rows, given with their keys, that can be decoded; the others are noted as of this ``kind``."""
        for key, data in rows:
            try:
                yield decode(data)
            except (ValueError, TypeError) as error:  # msgspec's errors are ValueErrors
                self.rows.setdefault(kind, {})[key] = str(error)

    def text(self, samples: int) -> str:
        """Describes what is missing; ``samples``: the number of samples that the file states."""
        parts = []
        if self.blocks:
            known = [block for block in self.blocks.values() if block.samples]
            if known:
                begin, end = min(block.begin for block in known), max(block.end for block in known)
                parts.append(f"{self.samples:,} of {samples:,} samples from {time_text(begin)} to {time_text(end)}")
            if unknown := len(self.blocks) - len(known):
                parts.append(f"{count_text(unknown, 'block')} of unknown length")
        parts += [f"{len(keys)} {kind if len(keys) == 1 else _PLURALS[kind]}" for kind, keys in self.rows.items()]
        missing = f"{', '.join(parts)} cannot be read" if parts else ""
        return "; ".join(filter(None, (self.database, missing)))

    def lines(self) -> Iterator[str]:
        """One line for each part that cannot be read."""
        if self.database:
            yield f"database: {self.database}"
        for number, block in self.blocks.items():
            when = f", {time_text(block.begin)} to {time_text(block.end)}" if block.samples else ""
            yield f"block {number}{when}: {block.why}"
        for kind, keys in self.rows.items():
            for key, why in keys.items():
                yield f"{kind} {key}: {why}"


class Database:
    """An open file. :class:`GpuwatchError` if it cannot be read at all."""

    def __init__(self, path: Path, damage: Damage) -> None:
        self._path, self._damage = path, damage
        self.salvaged = False
        """Whether rows come from what is left of the file."""
        try:
            self._connection = open_to_read(path)
        except (Unreadable, NotARecording) as error:
            if isinstance(error, NotARecording) and (path.suffix != SUFFIX or not error.damaged):
                raise
            self._read_what_is_left(error)

    def close(self) -> None:
        self._connection.close()

    def rows(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        try:
            return self._connection.execute(query, values).fetchall()
        except DATABASE_ERRORS as error:
            if self.salvaged or isinstance(error, (sqlite3.OperationalError, sqlite3.ProgrammingError)):
                raise unreadable_error(self._path, error) from error
            self._connection.close()
            self._read_what_is_left(error)
            return self.rows(query, values)

    @contextmanager
    def read_transaction(self) -> Iterator[None]:
        """A read transaction: a block that is sealed in between would be seen twice or not at all."""
        before = self._connection
        self.rows("BEGIN")
        try:
            yield
        finally:
            if self._connection is before:
                self.rows("COMMIT")

    def _read_what_is_left(self, error: Exception) -> None:
        try:
            damaged = DamagedFile(self._path)
            self._connection = damaged.database()
        except (OSError, ValueError, *DATABASE_ERRORS):
            raise unreadable_error(self._path, error) from error
        if not damaged.row_count:
            raise error if isinstance(error, GpuwatchError) else unreadable_error(self._path, error)
        self.salvaged, self._damage.database = True, damaged.describe_damage()
