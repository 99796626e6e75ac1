"""Cuts a part out of a recording, into a file of its own, which can be sent: one file, no write-ahead log."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from itertools import groupby
from pathlib import Path

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.machine.history.sample_frames import FrameEncoder
from gpuwatch.machine.recording.block_writer import BlockWriter
from gpuwatch.machine.recording.database_rows import write_events, write_findings
from gpuwatch.machine.recording.reader import ATTACHED, Recording
from gpuwatch.machine.recording.recording_database import open_to_write
from gpuwatch.machine.recording.sample_redaction import SampleRedactor
from gpuwatch.machine.recording.time_expressions import time_text

_BLOCK_SECONDS = 60.0
"""Seconds of a block."""


def cut_out(
    recording: Recording,
    begin: float,
    end: float,
    output: Path,
    *,
    redact: bool = False,
    attached: Mapping[str, str] | None = None,
) -> int:
    """Writes the samples, events, findings and processes from ``begin`` to ``end``; returns the number of samples.

    ``redact``: users, hosts, paths, addresses and ids are replaced, each by the same name everywhere. ``attached``: XML
    to keep beside them, by name. UsageError if ``output`` exists or cannot be written; a part of a file is never left
    behind.
    """
    name = printable_path(output)
    try:
        os.close(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        raise UsageError(f"{name} exists", hint="name a new file") from None
    except OSError as error:
        raise UsageError(f"cannot write {name}: {error.strerror or error}", hint="name another file") from None
    try:
        redactor = SampleRedactor() if redact else None
        if redactor is not None:
            for sample in recording.snapshots(begin, end):
                redactor.learn(sample)
            redactor.learn_parts(recording.events())
        with closing(open_to_write(output)) as db:
            return _copy(recording, begin, end, db, redactor, attached or {})
    except BaseException as error:
        for suffix in ("", "-journal"):
            with suppress(OSError):
                output.with_name(output.name + suffix).unlink()
        if isinstance(error, sqlite3.Error):
            raise GpuwatchError(f"cannot write {name}: {error}", hint="is the disk full?") from None
        raise


def _copy(
    recording: Recording,
    begin: float,
    end: float,
    db: sqlite3.Connection,
    redactor: SampleRedactor | None,
    attached: Mapping[str, str],
) -> int:
    db.execute("BEGIN")
    interval = 1.0
    for run in recording.sessions:
        if run.began <= end and (run.ended is None or run.ended >= begin):
            interval = run.interval
            host = run.hostname if redactor is None or run.hostname is None else redactor.host(run.hostname)
            db.execute(
                "INSERT INTO runs (id, began, began_boot, boot_id, hostname, version, interval, ended, why) "
                "VALUES (?, ?, 0, '', ?, ?, ?, ?, ?)",
                (run.number, run.began, host, run.version, run.interval, run.ended, run.why),
            )
    block_writer, samples = BlockWriter(db, interval), 0
    recorded = recording.snapshots(begin, end)
    if redactor is not None:
        recorded = map(redactor.sample, recorded)
    for _, samples_of_block in groupby(recorded, key=lambda sample: sample.at // _BLOCK_SECONDS):
        block_samples, encoder = list(samples_of_block), FrameEncoder()
        frames = b"".join([encoder.frames(sample.snapshot, sample.findings) for sample in block_samples])
        block_writer.seal(0, block_samples, frames, 0.0)
        samples += len(block_samples)
    events = [event for event in recording.events() if begin <= event.at <= end]
    write_events(db, [redactor.part(event) for event in events] if redactor is not None else events)
    findings = recording.findings(begin, end)
    write_findings(
        db, [(since, until, redactor.part(finding) if redactor else finding) for since, until, finding in findings]
    )
    notes = {"cut": f"{time_text(begin)} to {time_text(end)} of a recording, every {interval:g} s"}
    if redactor is not None:
        notes["redacted"] = "users, hosts, paths, addresses and ids are replaced"
    for name, text in attached.items():
        notes[ATTACHED + name] = redactor.xml(text) if redactor is not None else text
    db.executemany("INSERT INTO notes VALUES (?, ?)", list(notes.items()))
    db.execute("COMMIT")
    db.execute("PRAGMA journal_mode = DELETE").fetchone()
    return samples
