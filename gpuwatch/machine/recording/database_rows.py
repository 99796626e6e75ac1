"""The rows of a recording besides its samples, written and decoded: events, findings, processes, GPU time, sessions.

Damaged data raises :class:`.sample_frames.DamagedData`, which :class:`.database_reader.Damage` notes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from gpuwatch.core.model.findings import Finding
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.process_usage import ProcessLife
from gpuwatch.machine.history.sample_frames import DamagedData, StoredSample, decoded
from gpuwatch.machine.recording.database_cells import checksum, encoded_with_checksum, unpack_times, without_checksum
from gpuwatch.machine.recording.gpu_time_and_energy import GpuTime, unpack_gpu_time

_EARLIER_ONSET_QUERY = "SELECT max(since) FROM findings WHERE cause = ? AND device = ? AND pid = ? AND until >= ?"
_SAME_FINDING_SECONDS = 60.0
"""Seconds within which a finding without its onset that comes again is the same."""
_decode_event = msgspec.msgpack.Decoder(MachineEvent).decode
_decode_finding = msgspec.msgpack.Decoder(Finding).decode
_decode_life = msgspec.msgpack.Decoder(ProcessLife).decode


class RecorderSession(NamedTuple):
    """The time from a start of the recorder to its end."""

    number: int
    began: float
    """Seconds since the epoch."""
    ended: float | None
    """None: it is running, or was killed."""
    why: str | None
    hostname: str | None
    version: str
    """Version of gpuwatch."""
    interval: float
    """Seconds between samples."""


class RecordedFinding(NamedTuple):
    """A finding and the time for which it held, in seconds since the epoch."""

    since: float
    until: float
    finding: Finding

    @property
    def key(self) -> tuple[str, str, int, float]:
        return (self.finding.id, self.finding.device_uuid or "", self.finding.pid or 0, self.since)


def recorded_findings(
    samples: Iterable[StoredSample], query: Callable[[str, tuple[Any, ...]], Sequence[Any]]
) -> Iterator[RecordedFinding]:
    """The findings of some samples: each held until the last sample that has it, or until it says that it was last
    seen.

    One without its onset, as a single sample is judged, began with the first of these samples that has it, or is one
    with a row that ended just before. ``query`` asks the recording for rows.
    """
    found: dict[tuple[str, str, int, float], RecordedFinding] = {}
    first: dict[tuple[str, str | None, int | None], float] = {}
    for at, _, findings in samples:
        for finding in findings:
            if finding.id == "healthy":
                continue
            begun = first.setdefault(finding.key, at)
            since = finding.since.timestamp() if finding.since is not None else begun
            seen = finding.until or finding.last
            row = RecordedFinding(since, at if seen is None else seen.timestamp(), finding)
            found[row.key] = row
    for row in found.values():
        known = None
        if row.finding.since is None:
            ((known,),) = query(_EARLIER_ONSET_QUERY, (*row.key[:3], row.since - _SAME_FINDING_SECONDS))
        yield row if known is None else row._replace(since=known)


def event_of(row: tuple[float, bytes]) -> MachineEvent:
    """An event, of its time and data."""
    return decoded(_decode_event, without_checksum(row[1], row[0]))


def finding_of(row: tuple[float, float, bytes]) -> RecordedFinding:
    """Begin, end and data of a finding."""
    since, until, data = row
    return RecordedFinding(since, until, decoded(_decode_finding, without_checksum(data, since, until)))


def life_of(row: tuple[float, float, bytes]) -> ProcessLife:
    """First and last time, and data, of a process."""
    return decoded(_decode_life, without_checksum(row[2], row[0], row[1]))


def gpu_time_of(row: tuple[int, bytes]) -> tuple[int, GpuTime]:
    """Begin and data of an hour of GPU time."""
    return row[0], unpack_gpu_time(row[1])


def check_entry(row: tuple[Any, ...]) -> None:
    """Times, numbers and checksum of a block's entry: :class:`DamagedData` if they do not fit."""
    times, *entry, sum_ = row
    unpack_times(times)
    if checksum(*entry) != sum_:
        raise DamagedData("wrong checksum")


def session_of(row: tuple[Any, ...]) -> RecorderSession:
    """Decodes the columns of a session of the recorder."""
    return msgspec.convert(row, RecorderSession)


def write_findings(db: sqlite3.Connection, found: Iterable[tuple[float, float, Finding]]) -> None:
    """Writes findings, without secrets, with the times since and until which they held, inside a transaction."""
    db.executemany(
        "INSERT OR REPLACE INTO findings VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (
                finding.id,
                finding.device_uuid or "",
                finding.pid or 0,
                since,
                until,
                finding.severity,
                encoded_with_checksum(finding, since, until),
            )
            for since, until, finding in found
        ],
    )


def write_events(db: sqlite3.Connection, events: Iterable[MachineEvent]) -> None:
    """Writes events, which have no secrets any more, inside a transaction."""
    db.executemany(
        "INSERT INTO events (at, kind, severity, event) VALUES (?, ?, ?, ?)",
        [(event.at, event.kind, event.severity, encoded_with_checksum(event, event.at)) for event in events],
    )


def write_lives(db: sqlite3.Connection, lives: Iterable[ProcessLife]) -> None:
    """Writes the lives of processes, inside a transaction."""
    db.executemany(
        "INSERT OR REPLACE INTO processes VALUES (?, ?, ?, ?, ?, ?)",
        [(*life.key, life.first, life.last, encoded_with_checksum(life, life.first, life.last)) for life in lives],
    )
