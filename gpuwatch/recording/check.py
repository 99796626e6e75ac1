"""Checks a recording: the database, every block, every row."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gpuwatch.errors import GpuwatchError
from gpuwatch.formatting.terminal import file_name
from gpuwatch.history.machine_event import MachineEvent
from gpuwatch.model.findings import Finding
from gpuwatch.model.recording import RecordingCheck, RecordingGap
from gpuwatch.recording import gpu_time, tiers
from gpuwatch.recording.minute_blocks import DamagedMinute, Minute
from gpuwatch.recording.overview import gap_line, gaps_of
from gpuwatch.recording.process_lives import ProcessLife
from gpuwatch.recording.reader import Recording
from gpuwatch.recording.storage import DATABASE_ERRORS, looked_at, open_to_read
from gpuwatch.recording.time_expressions import shown


@dataclass
class _Found:
    damaged: list[str] = field(default_factory=list)
    gaps: tuple[RecordingGap, ...] = ()
    schema: int | None = None
    samples: int | None = None


def checked(path: Path) -> RecordingCheck:
    """Reads everything; :class:`~gpuwatch.errors.UsageError` if the file is no recording."""
    found = _Found()
    try:
        with open_to_read(path) as db:
            for (line,) in db.execute("PRAGMA quick_check(20)"):
                if line != "ok":
                    found.damaged.append(f"database: {line}")
            found.damaged += _blocks(db)
            found.damaged += _others(db, looked_at(path))
        db.close()
        with Recording(path) as recording:
            intervals = [run.interval for run in recording.runs]
            found.gaps = gaps_of(recording, max(2.5 * max(intervals, default=1.0), 2.0))
            found.schema, found.samples = recording.schema, recording.samples
    except (*DATABASE_ERRORS, GpuwatchError) as error:
        if isinstance(error, GpuwatchError) and not found.damaged:
            raise
        found.damaged.append(f"database: {error}")
    return RecordingCheck(
        source=file_name(path),
        whole=not found.damaged,
        damaged=tuple(found.damaged),
        file_schema=found.schema,
        samples=found.samples,
        gaps=found.gaps,
    )


def lines(report: RecordingCheck) -> Iterator[str]:
    """The result as text."""
    for what in report.damaged:
        yield f"damaged: {what}"
    for gap in report.gaps:
        yield f"gap: {gap_line(gap)}"
    summary = "not everything could be read"
    if report.samples is not None:
        summary = f"schema {report.file_schema}, {report.samples:,} samples, {len(report.gaps)} gaps"
    verdict = "whole" if report.whole else f"{len(report.damaged)} damaged parts"
    yield f"{report.source}: {verdict}; {summary}"


def _blocks(db: sqlite3.Connection) -> Iterator[str]:
    query = (
        "SELECT minutes.id, begin, end, samples, block FROM minutes LEFT JOIN data ON data.id = minutes.id "
        "ORDER BY minutes.id"
    )
    for number, begin, end, samples, block in db.execute(query):
        try:
            if block is None:
                raise DamagedMinute("its samples are missing")
            minute = Minute(block)
            count = sum(1 for _ in minute.all())
            times = minute.times
            if (count, times[0], times[-1]) != (samples, begin, end):
                raise DamagedMinute("it does not have the samples of its entry")
        except DamagedMinute as error:
            yield f"block {number}, {shown(begin)} to {shown(end)}: {error}"


def _others(db: sqlite3.Connection, schema: int) -> Iterator[str]:
    readers: tuple[tuple[str, str, Callable[[bytes], object]], ...] = (
        ("event", "SELECT id, event FROM events", msgspec.msgpack.Decoder(MachineEvent).decode),
        ("finding", "SELECT cause, finding FROM findings", msgspec.msgpack.Decoder(Finding).decode),
        ("process", "SELECT pid, life FROM processes", msgspec.msgpack.Decoder(ProcessLife).decode),
        ("averages", "SELECT begin, block FROM tiers", tiers.unpack_points),
        *([("GPU time", "SELECT begin, block FROM gpu_time", gpu_time.unpack)] if schema >= 2 else []),
    )
    for what, query, read in readers:
        for number, data in db.execute(query):
            try:
                read(data)
            except (ValueError, TypeError) as error:  # msgspec's errors are ValueErrors
                yield f"{what} {number}: {error}"
