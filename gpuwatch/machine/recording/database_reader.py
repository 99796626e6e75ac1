"""The rows of a recording's file, by SQLite; where that finds the file damaged, those that are left of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.machine.recording.database_salvage import Salvage
from gpuwatch.machine.recording.recording_damage import Damage
from gpuwatch.machine.recording.recording_database import (
    DATABASE_ERRORS,
    SUFFIX,
    NotARecording,
    Unreadable,
    open_to_read,
    unreadable_error,
)


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
            salvage = Salvage(self._path)
            self._connection = salvage.database()
        except (OSError, ValueError, *DATABASE_ERRORS):
            raise unreadable_error(self._path, error) from error
        if not salvage.rows:
            raise error if isinstance(error, GpuwatchError) else unreadable_error(self._path, error)
        self.salvaged, self._damage.database = True, salvage.describe_damage()
