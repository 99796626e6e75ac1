"""Cuts a part out of a recording, into a file of its own, which can be sent: one file, no write-ahead log."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.formatting.redaction import Redactor
from gpuwatch.formatting.terminal import file_name
from gpuwatch.history.frames import encoded
from gpuwatch.history.sample_store import Kept
from gpuwatch.model.findings import Finding
from gpuwatch.model.reading import Value
from gpuwatch.model.snapshot import Device, Process, Snapshot
from gpuwatch.recording.reader import Recording
from gpuwatch.recording.sealing import Sample, Sealer, write_events
from gpuwatch.recording.storage import created
from gpuwatch.recording.time_expressions import shown

_BLOCK = 60.0
"""Seconds of a block."""
_S = TypeVar("_S", bound=msgspec.Struct)


def cut_out(recording: Recording, begin: float, end: float, output: Path, *, redact: bool = False) -> int:
    """Writes the samples, events, findings and processes from ``begin`` to ``end``; returns the number of samples.

    ``redact``: users, hosts, paths, addresses and ids are replaced, each by the same name everywhere. UsageError if
    ``output`` exists or cannot be written; a part of a file is never left behind.
    """
    name = file_name(output)
    try:
        os.close(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        raise UsageError(f"{name} exists", hint="name a new file") from None
    except OSError as error:
        raise UsageError(f"cannot write {name}: {error.strerror or error}", hint="name another file") from None
    done = False
    try:
        private = _Private() if redact else None
        if private is not None:
            for kept in recording.snapshots(begin, end):
                private.learn(kept)
            for event in recording.events():
                private.redactor.learn(msgspec.to_builtins(event))
        db = created(output)
        try:
            samples = _copy(recording, begin, end, db, private)
        finally:
            db.close()
        done = True
    except sqlite3.Error as error:
        raise GpuwatchError(f"cannot write {name}: {error}", hint="is the disk full?") from None
    finally:
        if not done:
            for suffix in ("", "-journal"):
                with suppress(OSError):
                    output.with_name(output.name + suffix).unlink()
    return samples


def _copy(recording: Recording, begin: float, end: float, db: sqlite3.Connection, private: _Private | None) -> int:
    db.execute("BEGIN")
    interval = 1.0
    for run in recording.runs:
        if run.began <= end and (run.ended is None or run.ended >= begin):
            interval = run.interval
            host = run.hostname if private is None or run.hostname is None else private.host(run.hostname)
            db.execute(
                "INSERT INTO runs (id, began, began_boot, boot_id, hostname, version, interval, ended, why) "
                "VALUES (?, ?, 0, '', ?, ?, ?, ?, ?)",
                (run.number, run.began, host, run.version, run.interval, run.ended, run.why),
            )
    sealer, samples = Sealer(db, interval), 0
    for block in _blocks(recording.snapshots(begin, end), private):
        sealer.seal(0, block, block[-1][0].taken_at.timestamp() - begin)
        samples += len(block)
    events = [one for one in recording.events() if begin <= one.at <= end]
    write_events(db, [private.part(one) for one in events] if private is not None else events)
    for since, until, finding in recording.findings(begin, end):
        one = private.part(finding) if private is not None else finding
        row = (one.id, one.device_uuid or "", one.pid or 0, since, until, one.severity, encoded(one))
        db.execute("INSERT OR REPLACE INTO findings VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    notes = {"cut": f"{shown(begin)} to {shown(end)} of a recording, every {interval:g} s"}
    if private is not None:
        notes["redacted"] = "users, hosts, paths, addresses and ids have other names"
    db.executemany("INSERT INTO notes VALUES (?, ?)", list(notes.items()))
    db.execute("COMMIT")
    db.execute("PRAGMA journal_mode = DELETE").fetchone()
    return samples


def _blocks(samples: Iterator[Kept], private: _Private | None) -> Iterator[list[Sample]]:
    block: list[Sample] = []
    for kept in samples:
        if block and kept.at // _BLOCK != block[0][0].taken_at.timestamp() // _BLOCK:
            yield block
            block = []
        if private is not None:
            block.append((private.snapshot(kept.snapshot), private.findings(kept.findings)))
        else:
            block.append((kept.snapshot, kept.findings))
    if block:
        yield block


class _Private:
    """Replaces private names in samples. Rows in which only numbers changed are looked at once."""

    def __init__(self) -> None:
        self.redactor = Redactor()
        self._seen: set[bytes] = set()
        self._parts: dict[bytes, Any] = {}
        self._findings: tuple[tuple[Finding, ...], tuple[Finding, ...]] = ((), ())

    # Finding names

    def learn(self, kept: Kept) -> None:
        """Finds what is private in a sample."""
        snapshot = kept.snapshot
        rows: tuple[Device | Process, ...] = (*snapshot.devices, *snapshot.processes, *snapshot.bystanders)
        new: list[msgspec.Struct] = [row for row in rows if self._is_new(_key(row))]
        rest = _rest(snapshot)
        if self._is_new(encoded(rest)):
            new.append(rest)
        if kept.findings is not self._findings[0]:
            self._findings = (kept.findings, ())
            new += kept.findings
        if new:
            self.redactor.learn(msgspec.to_builtins(new))

    def _is_new(self, key: bytes) -> bool:
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    # Replacing them

    def host(self, name: str) -> str:
        """The other name of a host."""
        return str(self.redactor.replaced(name, "hostname"))

    def part(self, part: _S) -> _S:
        """A struct with other names."""
        return msgspec.convert(self.redactor.replaced(msgspec.to_builtins(part)), type(part))

    def findings(self, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """The findings of a sample; the same objects while they do not change."""
        if found is not self._findings[0]:
            self._findings = (found, ())
        if len(self._findings[1]) != len(found):
            self._findings = (found, tuple(map(self.part, found)))
        return self._findings[1]

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        """A sample."""
        rest = _rest(snapshot)
        other = self._once(encoded(rest), rest)
        return replace(
            other,
            taken_at=snapshot.taken_at,
            took_seconds=snapshot.took_seconds,
            topology=other.topology,
            host=replace(snapshot.host, hostname=other.host.hostname),
            devices=tuple(map(self._device, snapshot.devices)),
            processes=tuple(map(self._process, snapshot.processes)),
            bystanders=tuple(map(self._process, snapshot.bystanders)),
        )

    def _once(self, key: bytes, part: _S) -> _S:
        known = self._parts.get(key)
        if known is None:
            known = self._parts[key] = self.part(part)
        return known

    def _device(self, row: Device) -> Device:
        other = self._once(_key(row), row)
        parts = zip(other.mig_instances, row.mig_instances, strict=True)
        return replace(
            other,
            readings={
                name: value if type(value) is not str else other.readings[name] for name, value in row.readings.items()
            },
            mig_instances=tuple(replace(new, readings=old.readings) for new, old in parts),
        )

    def _process(self, row: Process) -> Process:
        other = self._once(_key(row), row)
        return replace(other, readings=row.readings, workers_cpu_percent=row.workers_cpu_percent)


def _key(row: Device | Process) -> bytes:
    """The row without its numbers."""
    texts: dict[str, Value] = {name: value for name, value in row.readings.items() if type(value) is str}
    if isinstance(row, Process):
        return encoded(replace(row, readings=texts, workers_cpu_percent=None))
    return encoded(
        replace(row, readings=texts, mig_instances=tuple(replace(one, readings={}) for one in row.mig_instances))
    )


def _rest(snapshot: Snapshot) -> Snapshot:
    """Everything but the rows and the numbers."""
    host = replace(
        snapshot.host, cpu_percent=None, memory_used_bytes=None, swap_used_bytes=None, load=None, uptime_seconds=None
    )
    epoch = snapshot.taken_at.replace(year=2000, month=1, day=1, hour=0, minute=0, second=0, microsecond=0)
    return replace(snapshot, taken_at=epoch, took_seconds=0.0, host=host, devices=(), processes=(), bystanders=())
