"""The tables of a recording, an SQLite database, and how its file is opened.

``open_frames`` has the samples since the last block, each committed when it came; joined and compressed they are a
block of ``data``, and its times go to ``minutes``. ``minutes.id`` is the order of recording, also where the clock was
set back.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import struct
from pathlib import Path

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.formatting.path_text import printable_path

APPLICATION_ID = 0x67707577
"""``gpuw``, in the header of the file."""
SCHEMA = 3
"""Version of the tables and blocks; also in the header of the file, as ``user_version``."""
SUFFIX = ".gpuwatch"

TABLES = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    began REAL NOT NULL,           -- seconds since the epoch, by the wall clock
    began_boot REAL NOT NULL,      -- seconds since the machine started, suspended time included
    boot_id TEXT NOT NULL,
    hostname TEXT,
    version TEXT NOT NULL,         -- of gpuwatch
    interval REAL NOT NULL,
    ended REAL,                    -- NULL: running, or killed
    why TEXT                       -- why it ended
);
CREATE TABLE open_frames (id INTEGER PRIMARY KEY, at REAL, boot REAL, frame BLOB NOT NULL);
CREATE TABLE minutes (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    begin REAL NOT NULL,
    end REAL NOT NULL,
    boot REAL NOT NULL,            -- at its end
    samples INTEGER NOT NULL,
    times BLOB NOT NULL,
    checksum INTEGER NOT NULL      -- of run, begin, end, boot, samples
);
-- The samples of the row of minutes with the same id.
CREATE TABLE data (id INTEGER PRIMARY KEY, block BLOB NOT NULL);
-- Summaries over so many seconds, many in a block.
CREATE TABLE tiers (seconds INTEGER NOT NULL, begin INTEGER NOT NULL, block BLOB NOT NULL,
    PRIMARY KEY (seconds, begin)) WITHOUT ROWID;
CREATE TABLE events (id INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, severity TEXT NOT NULL,
    event BLOB NOT NULL);
CREATE INDEX events_at ON events (at);
CREATE TABLE findings (cause TEXT NOT NULL, device TEXT NOT NULL, pid INTEGER NOT NULL, since REAL NOT NULL,
    until REAL NOT NULL, severity TEXT NOT NULL, finding BLOB NOT NULL,
    PRIMARY KEY (cause, device, pid, since)) WITHOUT ROWID;
CREATE TABLE processes (pid INTEGER NOT NULL, create_time REAL NOT NULL, device TEXT NOT NULL, first REAL NOT NULL,
    last REAL NOT NULL, life BLOB NOT NULL,
    PRIMARY KEY (pid, create_time, device)) WITHOUT ROWID;
-- GPU time of processes by hour.
CREATE TABLE gpu_time (begin INTEGER PRIMARY KEY, block BLOB NOT NULL);
-- How the recording was cut or redacted, and documents attached to it.
CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""

_HEADER = struct.Struct(">16s44xI4xI")
"""Header of an SQLite file: magic, user_version and application_id."""
MAGIC = b"SQLite format 3\0"


DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What a damaged file raises: the name of a damaged table, as part of an error, may not be UTF-8."""


class NotARecording(UsageError):
    """The file is something else, damaged, or of another version of gpuwatch."""

    damaged = False
    """Whether it may be a recording with a damaged header."""


class Unreadable(GpuwatchError):
    """SQLite cannot read the file."""


def check_is_recording(path: Path) -> None:
    """:class:`NotARecording` if the file is no recording that can be read."""
    name = printable_path(path)
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise NotARecording(f"{name} is not a file", hint="give a file that gpuwatch record wrote")
            head = file.read(_HEADER.size)
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror or error}") from None
    if len(head) < _HEADER.size:
        raise NotARecording(f"{name} is not a recording", hint="give a file that gpuwatch record wrote")
    magic, schema, application = _HEADER.unpack(head)
    if magic != MAGIC or application != APPLICATION_ID:
        other = NotARecording(f"{name} is not a recording", hint="give a file that gpuwatch record wrote")
        other.damaged = True
        raise other
    if schema != SCHEMA:
        hint = "update gpuwatch" if schema > SCHEMA else "read it with that version"
        raise NotARecording(f"{name} was written by another version of gpuwatch (schema {schema})", hint=hint)


def open_to_read(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing; the recording may be growing. :class:`UsageError` if it cannot be read."""
    check_is_recording(path)
    url = path.absolute().as_uri()
    name = printable_path(path)
    for options in ("mode=ro", "immutable=1"):
        connection = sqlite3.connect(
            f"{url}?{options}", uri=True, timeout=5.0, isolation_level=None, check_same_thread=False
        )
        # A flipped bit makes text of a block: that row alone is damaged.
        connection.text_factory = lambda data: data.decode(errors="replace")
        try:
            connection.execute("PRAGMA trusted_schema = OFF")  # it may be somebody else's file
            connection.execute("SELECT count(*) FROM runs").fetchone()
        except sqlite3.OperationalError as error:
            connection.close()
            write_ahead_log = path.with_name(f"{path.name}-wal")
            if options == "mode=ro" and not (write_ahead_log.exists() and write_ahead_log.stat().st_size):
                continue  # a folder in which the reader may not create the shared memory of a file at rest
            for part in (write_ahead_log, path.with_name(f"{path.name}-shm")):
                if part.exists() and not os.access(part, os.R_OK):
                    raise GpuwatchError(
                        f"cannot read {name}: there is no permission to read {part.name}",
                        hint=f"its owner can allow it: chmod --reference={name} {name}-*",
                    ) from None
            if not os.access(path.parent, os.W_OK):
                raise GpuwatchError(
                    f"cannot read {name}: its recorder was killed",
                    hint="start the recorder again, or read it as its owner",
                ) from None
            raise unreadable_error(path, error) from None
        except DATABASE_ERRORS as error:
            connection.close()
            raise unreadable_error(path, error) from None
        return connection
    raise AssertionError


def unreadable_error(path: Path, error: Exception) -> Unreadable:
    """What to report when SQLite cannot read the file."""
    if isinstance(error, Unreadable):
        return error
    hint = "gpuwatch record check shows what can still be read"
    return Unreadable(f"cannot read {printable_path(path)}: {error}", hint=hint)


def open_to_write(path: Path) -> sqlite3.Connection:
    """A connection to a recording, which is made in an empty file."""
    connection = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)
    if path.stat().st_size:
        return connection
    # At once: who opens it meanwhile sees an empty file or a recording.
    header = f"PRAGMA application_id = {APPLICATION_ID};PRAGMA user_version = {SCHEMA};"
    connection.executescript(f"BEGIN;PRAGMA auto_vacuum = INCREMENTAL;{header}{TABLES}COMMIT;")
    return connection
