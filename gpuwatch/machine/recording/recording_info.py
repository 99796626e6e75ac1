"""Contents of a recording, and a check that all of it is readable: as a document and as lines of text."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.recording import (
    RecordedGpu,
    RecordedProblem,
    RecorderRun,
    RecordingCheck,
    RecordingGap,
    RecordingInfo,
)
from gpuwatch.core.safe_text import printable
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.machine.history.sample_gaps import gap_limit
from gpuwatch.machine.recording.database_rows import RecordedFinding, RecorderSession
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.recording_database import DATABASE_ERRORS, SCHEMA, open_to_read
from gpuwatch.machine.recording.time_expressions import time_text

_MAX_LISTED = 5
"""Problems, and gaps, that are listed in text."""


def recording_info(recording: Recording) -> RecordingInfo:
    """What is in a file; :class:`~gpuwatch.core.errors.GpuwatchError` if it cannot be read."""
    last = recording.at(float("inf")) if recording.samples else None
    snapshot = last.snapshot if last is not None else None
    processes = recording.processes()
    problems = [finding for finding in recording.findings() if finding.finding.severity != "info"]
    return RecordingInfo(
        source=printable_path(recording.path),
        size_bytes=recording.path.stat().st_size,
        file_schema=SCHEMA,
        notes=recording.notes,
        begin=_datetime_of(recording.begin),
        end=_datetime_of(recording.end),
        samples=recording.samples,
        samples_hidden=recording.hidden_samples,
        host=snapshot.host.hostname if snapshot is not None else None,
        simulated=snapshot.simulated if snapshot is not None else None,
        driver_version=snapshot.driver.version if snapshot is not None and snapshot.driver is not None else None,
        gpus=tuple(
            RecordedGpu(index=device.index, uuid=device.uuid, name=device.name)
            for device in (snapshot.devices if snapshot is not None else ())
        ),
        processes=len({(life.pid, life.create_time) for life in processes}),
        users=len({life.user for life in processes if life.user}),
        events=len(recording.events()),
        problems=tuple(map(_problem, problems)),
        gaps=_gaps_of(recording),
        recorders=tuple(map(_recorder_run, recording.sessions)),
    )


def info_lines(info: RecordingInfo) -> Iterator[str]:
    """The contents of a recording as lines of text."""
    yield f"{info.source}: {size(info.size_bytes)}, schema {info.file_schema}"
    for name, value in info.notes.items():
        yield f"  {printable(name)}: {printable(value)}"
    if info.begin is None or info.end is None:
        yield "  no samples yet"
        return
    seconds = (info.end - info.begin).total_seconds()
    yield f"  time      {_time_text(info.begin)} to {_time_text(info.end)} ({hours_minutes(seconds)})"
    every = f", every {info.recorders[-1].interval_seconds:g} s" if info.recorders else ""
    yield f"  samples   {info.samples:,}{every}"
    if info.samples_hidden:
        yield f"            hidden: {info.samples_hidden:,} more: the clock was set back, so their times occur twice"
    if info.simulated is not None:
        yield f"  machine   {printable(info.host or 'unknown')}{' (simulated)' if info.simulated else ''}"
    if info.driver_version is not None:
        yield f"  driver    {printable(info.driver_version)}"
    for gpu in info.gpus:
        yield f"  GPU {gpu.index}     {printable(gpu.name)} {printable(gpu.uuid)}"
    of = f", of {count_text(info.users, 'user')}" if info.users else ""
    yield f"  processes {info.processes} on GPUs{of}"
    yield f"  events    {info.events:,}"
    yield f"  problems  {len(info.problems) or 'none'}"
    for problem in info.problems[:_MAX_LISTED]:
        yield f"            {_time_text(problem.since)}  {printable(problem.title)}"
    total = f", {hours_minutes(sum(gap.seconds for gap in info.gaps))} in total" if info.gaps else ""
    yield f"  gaps      {len(info.gaps) or 'none'}{total}"
    for gap in sorted(info.gaps, key=lambda gap: -gap.seconds)[:_MAX_LISTED]:
        yield f"            {_gap_line(gap)}"
    for run in info.recorders:
        ended = "still running, or killed"
        if run.ended is not None:
            ended = f"to {_time_text(run.ended)}" + (f", ended {printable(run.ended_by)}" if run.ended_by else "")
        yield f"  recorder  {_time_text(run.began)} {ended} (gpuwatch {printable(run.gpuwatch_version)})"


def _gaps_of(recording: Recording) -> tuple[RecordingGap, ...]:
    return tuple(
        RecordingGap(begin=_datetime_of(begin), end=_datetime_of(end), seconds=end - begin)
        for begin, end in recording.gaps(gap_limit(recording.interval))
    )


def _gap_line(gap: RecordingGap) -> str:
    return f"{_time_text(gap.begin)} to {_time_text(gap.end)} ({hours_minutes(gap.seconds)})"


def _datetime_of(at: float | None) -> datetime.datetime | None:
    """The time of seconds since the epoch; None for a damaged number, which is no time."""
    try:
        return utc_datetime(at) if at is not None else None
    except (ValueError, OverflowError, OSError, TypeError):
        return None


def _time_text(when: datetime.datetime | None) -> str:
    return time_text(when.timestamp()) if when is not None else "an unknown time"


def _problem(finding: RecordedFinding) -> RecordedProblem:
    found = finding.finding
    return RecordedProblem(
        cause=found.id,
        severity=found.severity,
        title=found.title,
        device_uuid=found.device_uuid,
        pid=found.pid,
        since=_datetime_of(finding.since),
        until=_datetime_of(finding.until),
    )


def _recorder_run(session: RecorderSession) -> RecorderRun:
    return RecorderRun(
        began=_datetime_of(session.began),
        ended=_datetime_of(session.ended),
        ended_by=session.why or None,
        interval_seconds=session.interval,
        gpuwatch_version=session.version,
    )


def check_recording(path: Path) -> RecordingCheck:
    """Reads everything; :class:`~gpuwatch.core.errors.GpuwatchError` if nothing of it can be read."""
    with Recording(path) as recording:
        recording.verify(decode=True)
        damaged = [*(f"database: {line}" for line in _sqlite_problems(path)), *recording.damage.lines()]
        return RecordingCheck(
            source=printable_path(path),
            whole=not damaged,
            damaged=tuple(damaged),
            file_schema=SCHEMA,
            samples=recording.samples,
            gaps=_gaps_of(recording),
        )


def check_lines(report: RecordingCheck) -> Iterator[str]:
    """The result of a check as lines of text."""
    for what in report.damaged:
        yield f"damaged: {what}"
    for gap in report.gaps:
        yield f"gap: {_gap_line(gap)}"
    summary = "not everything could be read"
    if report.samples is not None:
        counts = f"{count_text(report.samples, 'sample')}, {count_text(len(report.gaps), 'gap')}"
        summary = f"schema {report.file_schema}, {counts}"
    verdict = "whole" if report.whole else count_text(len(report.damaged), "damaged part")
    yield f"{report.source}: {verdict}; {summary}"


def _sqlite_problems(path: Path) -> list[str]:
    """What SQLite finds; empty if it cannot open the file, which the reader has noted."""
    try:
        with closing(open_to_read(path)) as db:
            return [line for (line,) in db.execute("PRAGMA quick_check(20)") if line != "ok"]
    except (*DATABASE_ERRORS, GpuwatchError):
        return []
