"""Writes a recording: every sample is committed when it comes, and sealed into a block with those of its minute."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from gpuwatch import __version__
from gpuwatch.core import private_folders
from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.masking.masked_documents import masked
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.sample_frames import FrameDecoder, FrameEncoder, StoredSample
from gpuwatch.machine.recording import recording_defaults
from gpuwatch.machine.recording.block_writer import BlockWriter
from gpuwatch.machine.recording.database_cells import with_checksum, without_checksum
from gpuwatch.machine.recording.database_rows import write_events
from gpuwatch.machine.recording.minute_and_hour_means import AGE_FACTORS, BLOCK_SECONDS, HOUR
from gpuwatch.machine.recording.recording_database import check_is_recording, open_to_write
from gpuwatch.machine.recording.storable_snapshots import StorableSnapshots
from gpuwatch.machine.sources.procfs import boot_id

SEAL_SECONDS = 60.0
"""Length of a block, which begins at a multiple of it."""
_CLOCK_JUMP_SECONDS = 2.0
"""Seconds by which the wall clock may drift between two samples before it was set."""
_MAX_OPEN_SAMPLES = 600
"""Samples in a block, however short the interval."""
_FREED_AT_ONCE_SHARE = 0.02
"""Share of the maximum size that is freed at once, so that not every block deletes one."""


@dataclass(frozen=True)
class Clock:
    """The clocks of this machine, in seconds."""

    wall: Callable[[], float] = time.time
    boot: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    """Since the start, suspended time included."""
    monotonic: Callable[[], float] = time.monotonic
    """Since the start, without suspended time."""
    boot_id: Callable[[], str] = boot_id


class RecordingStopped(GpuwatchError):
    """The file can no longer be written; the samples recorded so far can be read."""


class RecordingWriter:
    """The only writer of a file. Used by one thread at a time."""

    def __init__(
        self,
        path: Path,
        *,
        interval: float = recording_defaults.INTERVAL_SECONDS,
        max_bytes: int = recording_defaults.MAX_BYTES,
        max_age: float = recording_defaults.MAX_SECONDS,
        seal_seconds: float = SEAL_SECONDS,
        clock: Clock | None = None,
        hostname: str | None = None,
    ) -> None:
        """Creates the file, or continues it. ``interval``, ``max_age`` and ``seal_seconds`` in seconds.

        UsageError if it cannot be used, as when another process writes it.
        """
        self.path = path
        self.samples = 0
        self._max_bytes, self._max_age = max(max_bytes, recording_defaults.MIN_BYTES), max_age
        self._seal_seconds = seal_seconds
        self._clock = clock or Clock()
        self._lock = _create_locked(path)
        try:
            self._db = self._open_database()
            self._block_writer = BlockWriter(self._db, interval)
            self._open_samples: list[StoredSample] = []
            self._open_frames: list[bytes] = []
            """Those of the open samples."""
            self._open_bytes = 0
            self._begin_block()
            self._storable_snapshots = StorableSnapshots()
            self._findings: tuple[tuple[Finding, ...], tuple[Finding, ...]] = ((), ())
            """The findings of the last sample, as given and as stored."""
            self._session_id = 0
            with self._stop_on_database_error():
                self._seal_left_samples()
                self._begin_session(interval, hostname)
        except BaseException:
            self._lock.close()
            raise

    def _open_database(self) -> sqlite3.Connection:
        try:
            if self.path.stat().st_size:
                check_is_recording(self.path)
            connection = open_to_write(self.path)
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            # A kill loses nothing; a power failure loses at most what came since the last checkpoint, about a minute.
            connection.execute("PRAGMA synchronous = NORMAL")
            # The log is part of the size: it is merged before it takes a sixteenth of it, or a megabyte.
            pages = max(min(self._max_bytes // 16, 1 << 20) // 4096, 4)
            connection.execute(f"PRAGMA wal_autocheckpoint = {pages}").fetchone()
            connection.execute(f"PRAGMA journal_size_limit = {self._max_bytes // 16}").fetchone()
        except sqlite3.Error as error:
            what = f"cannot record to {printable_path(self.path)}: {error}"
            raise UsageError(what, hint="name another file, or check this one: gpuwatch record check") from None
        return connection

    def _seal_left_samples(self) -> None:
        """Seals the samples of a writer that was killed."""
        rows = self._db.execute("SELECT boot, frame FROM open_frames ORDER BY id").fetchall()
        last_boot = next((boot for boot, _ in reversed(rows) if boot is not None), 0.0)
        decoder = FrameDecoder()
        with suppress(ValueError):  # what follows a damaged frame needs it
            for _, data in rows:
                frames = without_checksum(data)
                self._open_samples += map(FrameDecoder.sample, decoder.read(frames))
                self._open_frames.append(frames)
        if self._open_samples:
            self._session_id = self._db.execute("SELECT max(id) FROM runs").fetchone()[0]
            with self._transaction():
                self._seal(last_boot)

    def _begin_session(self, interval: float, hostname: str | None) -> None:
        wall, boot, _ = self._clock_times = self._clock.wall(), self._clock.boot(), self._clock.monotonic()
        self._session_began = (wall, boot)
        self._boot_id = self._clock.boot_id()
        with self._transaction():
            cursor = self._db.execute(
                "INSERT INTO runs (began, began_boot, boot_id, hostname, version, interval) VALUES (?, ?, ?, ?, ?, ?)",
                (wall, boot, self._boot_id, hostname, __version__, interval),
            )
            self._session_id = cursor.lastrowid or 0
            text = f"recording began, every {interval:g} s"
            write_events(self._db, [MachineEvent(at=wall, kind="recording.began", text=text)])

    def add(self, snapshot: Snapshot, findings: tuple[Finding, ...] = (), events: Sequence[MachineEvent] = ()) -> None:
        """Records a sample with the findings that hold in it and the events since the previous one.

        :class:`RecordingStopped` if the file can no longer be written: the recording is closed then.
        """
        at = snapshot.taken_at.timestamp()
        with self._stop_on_database_error():
            clock_was_set, clock_events = self._check_clocks()
            if self._open_samples and (
                clock_was_set
                or at < self._open_samples[-1].at
                or at // self._seal_seconds != self._open_samples[0].at // self._seal_seconds
                or len(self._open_samples) >= _MAX_OPEN_SAMPLES
            ):
                with self._transaction():
                    self._seal(self._clock_times[1])
                self._enforce_limits()
            stored = self._storable_snapshots.of(snapshot)
            given, masked_findings = self._findings
            if findings is not given:
                if findings != given:
                    masked_findings = tuple(map(masked, findings))
                self._findings = (findings, masked_findings)
            frames = self._encoder.frames(stored, masked_findings)
            with self._transaction():
                row = (at, self._clock_times[1], with_checksum(frames))
                self._db.execute("INSERT INTO open_frames (at, boot, frame) VALUES (?, ?, ?)", row)
                write_events(self._db, [*clock_events, *map(masked, events)])
            self._open_samples.append(StoredSample(at, stored, masked_findings))
            self._open_frames.append(frames)
            self._open_bytes += len(frames)
            self.samples += 1

    def add_events(self, events: Sequence[MachineEvent]) -> None:
        """Records events without a sample, as while the driver does not answer."""
        if events:
            with self._stop_on_database_error(), self._transaction():
                write_events(self._db, [*map(masked, events)])

    def close(self, why: str = "") -> None:
        """Seals what is open and ends the recording; ``why``: the reason, for those who read it."""
        if self._lock.closed:
            return
        with self._stop_on_database_error():
            wall, boot = self._clock.wall(), self._clock.boot()
            with self._transaction():
                if self._open_samples:
                    self._seal(boot)
                self._db.execute("UPDATE runs SET ended = ?, why = ? WHERE id = ?", (wall, why, self._session_id))
                text = f"recording ended{f': {why}' if why else ''}"
                write_events(self._db, [MachineEvent(at=wall, kind="recording.ended", text=text)])
            self._enforce_limits()
            with suppress(sqlite3.OperationalError):  # somebody is reading: do not wait
                self._db.execute("PRAGMA busy_timeout = 100").fetchone()
                self._db.execute("PRAGMA journal_mode = DELETE").fetchone()  # at rest it is one file
        self._close_files()

    @property
    def size_bytes(self) -> int:
        """What the file and its write-ahead log take on the disk."""
        return sum(_file_bytes(self.path.with_name(self.path.name + suffix)) for suffix in ("", "-wal"))

    def _close_files(self) -> None:
        with suppress(sqlite3.Error):
            self._db.close()  # the log is merged if there is room; otherwise readers do it
        self._lock.close()  # last: closing any descriptor of the file drops SQLite's own locks on it

    @contextmanager
    def _stop_on_database_error(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            self._close_files()
            raise _stopped_error(self.path, error) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    def _check_clocks(self) -> tuple[bool, list[MachineEvent]]:
        """Whether the wall clock was set since the last sample, and the events of that and of a suspend."""
        before, self._clock_times = self._clock_times, (self._clock.wall(), self._clock.boot(), self._clock.monotonic())
        wall, boot, monotonic = (now - then for now, then in zip(self._clock_times, before, strict=True))
        found = []
        if boot - monotonic > _CLOCK_JUMP_SECONDS:
            text = f"the machine was suspended for {hours_minutes(boot - monotonic)}"
            found.append(MachineEvent(at=self._clock_times[0], kind="machine.resumed", text=text))
        jump = wall - boot
        if abs(jump) <= _CLOCK_JUMP_SECONDS:
            return False, found
        text = f"the clock was set {'forward' if jump > 0 else 'back'} by {hours_minutes(abs(jump))}"
        return True, [*found, MachineEvent(at=self._clock_times[0], kind="clock.set", text=text)]

    def _begin_block(self) -> None:
        self._open_samples.clear()
        self._open_frames.clear()
        self._encoder = FrameEncoder()

    def _seal(self, boot: float) -> None:
        """Compresses the open samples, inside a transaction."""
        self._block_writer.seal(self._session_id, self._open_samples, b"".join(self._open_frames), boot)
        self._db.execute("DELETE FROM open_frames")
        self._begin_block()

    def _enforce_limits(self) -> None:
        """Enforces the limits, after a block was sealed."""
        with self._transaction():
            self._delete_old()
            self._delete_beyond_size()
        self._open_bytes = 0
        free, pages = self._pragma_number("freelist_count"), self._pragma_number("page_count")
        if free * 20 > pages:
            self._db.execute(f"PRAGMA incremental_vacuum({free - pages // 20})").fetchall()
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _delete_old(self) -> None:
        """Deletes what is older than the maximum age.

        Age is measured by the clock that is never set; across restarts of the machine by the wall clock, the lower one
        of what it was when this run began and what it is now, so that a clock set forward deletes nothing.
        """
        wall, boot, _ = self._clock_times
        elapsed = boot - self._session_began[1]
        now = min(self._session_began[0], wall - elapsed) + elapsed
        self._delete_blocks(
            "(run IN (SELECT id FROM runs WHERE boot_id = ?1) AND boot < ?2) "
            "OR (run NOT IN (SELECT id FROM runs WHERE boot_id = ?1) AND end < ?3)",
            (self._boot_id, boot - self._max_age, now - self._max_age),
        )
        self._delete_rows(now - self._max_age)
        for seconds, factor in AGE_FACTORS.items():
            last = now - factor * self._max_age - BLOCK_SECONDS[seconds]
            self._db.execute("DELETE FROM tiers WHERE seconds = ? AND begin < ?", (seconds, last))
        self._db.execute("DELETE FROM gpu_time WHERE begin < ?", (now - AGE_FACTORS[HOUR] * self._max_age,))

    def _delete_beyond_size(self) -> None:
        """Deletes the oldest blocks until the file is below its maximum size, and then the means."""
        # The log is as large as it ever was, and the next minute may take as much as the last one.
        log = _file_bytes(self.path.with_name(f"{self.path.name}-wal"))
        max_used = self._max_bytes - log - 2 * self._open_bytes - self._max_bytes // 32
        if self._used_bytes() <= max_used:
            return
        target = max(int(max_used - self._max_bytes * _FREED_AT_ONCE_SHARE), 0)
        while (excess := self._used_bytes() - target) > 0:
            last = None
            # All but the newest: readers count on growing numbers.
            blocks = "SELECT id, length(block) FROM data WHERE id < (SELECT max(id) FROM data) ORDER BY id"
            for number, size in self._db.execute(blocks):
                last, excess = number, excess - size
                if excess <= 0:
                    break
            if last is None:
                break
            self._delete_blocks("id <= ?1", (last,))
            row = self._db.execute("SELECT begin FROM minutes ORDER BY id LIMIT 1").fetchone()
            self._delete_rows(row[0] if row else float("inf"))
        for seconds in BLOCK_SECONDS:
            while self._used_bytes() > max_used:
                oldest = "SELECT min(begin) FROM tiers WHERE seconds = ?1"
                query = f"DELETE FROM tiers WHERE seconds = ?1 AND begin = ({oldest})"  # noqa: S608  # a condition of ours
                if not self._db.execute(query, (seconds,)).rowcount:
                    break
        while self._used_bytes() > max_used:
            if not self._db.execute("DELETE FROM gpu_time WHERE begin = (SELECT min(begin) FROM gpu_time)").rowcount:
                break

    def _delete_blocks(self, which: str, values: tuple[object, ...]) -> None:
        self._db.execute(f"DELETE FROM data WHERE id IN (SELECT id FROM minutes WHERE {which})", values)  # noqa: S608  # a condition of ours
        self._db.execute(f"DELETE FROM minutes WHERE {which}", values)  # noqa: S608  # a condition of ours

    def _delete_rows(self, before: float) -> None:
        """Deletes events, findings and processes that were over before a moment."""
        self._db.execute("DELETE FROM events WHERE at < ?", (before,))
        self._db.execute("DELETE FROM findings WHERE until < ?", (before,))
        self._db.execute("DELETE FROM processes WHERE last < ?", (before,))
        # The newest run is this one.
        self._db.execute(
            "DELETE FROM runs WHERE id < ? AND coalesce(ended, began) < ? AND id NOT IN (SELECT run FROM minutes)",
            (self._session_id, before),
        )

    def _used_bytes(self) -> int:
        pages = self._pragma_number("page_count") - self._pragma_number("freelist_count")
        return pages * self._pragma_number("page_size")

    def _pragma_number(self, pragma: str) -> int:
        return int(self._db.execute(f"PRAGMA {pragma}").fetchone()[0])


def _create_locked(path: Path) -> FileIO:
    """Creates the file, for this user alone, and locks it until it is closed; UsageError if it cannot be used."""
    name = printable_path(path)
    why = private_folders.why_untrusted(path.parent)
    if why:
        raise UsageError(f"not recording to {name}: {why}", hint="name a file in a folder that you own")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror or str(error)
        raise UsageError(f"cannot record to {name}: {why}", hint="name another file") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError(f"cannot record to {name}: it is not a file", hint="name another file")
        why = private_folders.why_file_untrusted(path)
        if why:
            raise UsageError(f"not recording to {name}: {why}", hint="name a file that you own")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(
                f"another gpuwatch records to {name}", hint="one recorder is enough for all readers"
            ) from None
    except BaseException:
        os.close(descriptor)
        raise
    return FileIO(descriptor)


def _stopped_error(path: Path, error: sqlite3.Error) -> RecordingStopped:
    name = printable_path(path)
    code = getattr(error, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_FULL:
        why = "the disk is full"
    elif code & 0xFF == sqlite3.SQLITE_IOERR:
        why = f"{error}; is the disk full, or the file's size limited (ulimit -f)?"
    else:
        why = str(error)
    what = f"recording stopped: cannot write {name}: {why}"
    return RecordingStopped(what, hint="the samples recorded so far can be read")


def _file_bytes(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0
