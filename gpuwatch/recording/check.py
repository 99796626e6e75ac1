"""Checks a recording: the database, every block, every row."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gpuwatch.errors import GpuwatchError
from gpuwatch.formatting.terminal import file_name
from gpuwatch.history.machine_event import MachineEvent, lasted
from gpuwatch.model.findings import Finding
from gpuwatch.recording import gpu_time, tiers
from gpuwatch.recording.minute_blocks import DamagedMinute, Minute
from gpuwatch.recording.process_lives import ProcessLife
from gpuwatch.recording.reader import Recording
from gpuwatch.recording.storage import DATABASE_ERRORS, looked_at, open_to_read
from gpuwatch.recording.time_expressions import shown


@dataclass
class Report:
    """What was found."""

    lines: list[str] = field(default_factory=list)
    damaged: int = 0
    """Number of damaged parts."""


def checked(path: Path) -> Report:
    """Reads everything; :class:`~gpuwatch.errors.UsageError` if the file is no recording."""
    report = Report()
    name = file_name(path)
    try:
        with open_to_read(path) as db:
            for (line,) in db.execute("PRAGMA quick_check(20)"):
                if line != "ok":
                    _note(report, f"database: {line}")
            _blocks(db, report)
            for what in _others(db, looked_at(path)):
                _note(report, what)
        db.close()
        with Recording(path) as recording:
            intervals = [run.interval for run in recording.runs]
            gaps = list(recording.gaps(max(2.5 * max(intervals, default=1.0), 2.0)))
            report.lines += [f"gap: {shown(begin)} to {shown(end)} ({lasted(end - begin)})" for begin, end in gaps]
            summary = f"schema {recording.schema}, {recording.samples:,} samples, {len(gaps)} gaps"
    except (*DATABASE_ERRORS, GpuwatchError) as error:
        if isinstance(error, GpuwatchError) and not report.lines:
            raise
        _note(report, f"database: {error}")
        summary = "not everything could be read"
    verdict = f"{report.damaged} damaged parts" if report.damaged else "whole"
    report.lines.append(f"{name}: {verdict}; {summary}")
    return report


def _note(report: Report, what: str) -> None:
    report.damaged += 1
    report.lines.append(f"damaged: {what}")


def _blocks(db: sqlite3.Connection, report: Report) -> None:
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
            _note(report, f"block {number}, {shown(begin)} to {shown(end)}: {error}")


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
