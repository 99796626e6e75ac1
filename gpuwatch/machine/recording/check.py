"""Checks a recording: the database, every block, every row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.formatting.terminal import file_name
from gpuwatch.core.model.recording import RecordingCheck
from gpuwatch.machine.recording.overview import gap_line, gaps_of
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.tables import DATABASE_ERRORS, SCHEMA, open_to_read


def checked(path: Path) -> RecordingCheck:
    """Reads everything; :class:`~gpuwatch.core.errors.GpuwatchError` if nothing of it can be read."""
    with Recording(path) as recording:
        recording.verify(decode=True)
        intervals = [run.interval for run in recording.runs]
        damaged = [*(f"database: {line}" for line in _database(path)), *recording.damage.lines()]
        return RecordingCheck(
            source=file_name(path),
            whole=not damaged,
            damaged=tuple(damaged),
            file_schema=SCHEMA,
            samples=recording.samples,
            gaps=gaps_of(recording, max(intervals, default=1.0)),
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
    verdict = "whole" if report.whole else f"{len(report.damaged)} damaged part{'s' if len(report.damaged) > 1 else ''}"
    yield f"{report.source}: {verdict}; {summary}"


def _database(path: Path) -> list[str]:
    """What SQLite finds; empty if it cannot open the file, which the reader has noted."""
    try:
        db = open_to_read(path)
        try:
            return [line for (line,) in db.execute("PRAGMA quick_check(20)") if line != "ok"]
        finally:
            db.close()
    except (*DATABASE_ERRORS, GpuwatchError):
        return []
