"""Replaces users, hosts, paths, addresses and ids in samples, each by the same name in all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from gpuwatch.core.masking.redactor import Redactor
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.reading import Value
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.machine.history.sample_frames import StoredSample, encoded

_S = TypeVar("_S", bound=msgspec.Struct)


class SampleRedactor:
    """Replaces private names in samples. Rows in which only numbers changed are looked at once."""

    def __init__(self) -> None:
        self._redactor = Redactor()
        self._learned: set[bytes] = set()
        self._redacted_parts: dict[bytes, Any] = {}
        self._findings: tuple[tuple[Finding, ...], tuple[Finding, ...]] = ((), ())

    def learn(self, sample: StoredSample) -> None:
        """Finds what is private in a sample; all are learned before the first is redacted."""
        snapshot = sample.snapshot
        rows: tuple[Device | Process, ...] = (*snapshot.devices, *snapshot.processes, *snapshot.bystanders)
        new: list[msgspec.Struct] = [row for row in rows if self._is_new(_text_key(row))]
        rest = _lasting_part(snapshot)
        if self._is_new(encoded(rest)):
            new.append(rest)
        if sample.findings is not self._findings[0]:
            self._findings = (sample.findings, ())
            new += sample.findings
        if new:
            self._redactor.learn(msgspec.to_builtins(new))

    def learn_parts(self, parts: Iterable[msgspec.Struct]) -> None:
        """Finds what is private in events, findings, lives of processes."""
        self._redactor.learn([msgspec.to_builtins(part) for part in parts])

    def _is_new(self, key: bytes) -> bool:
        if key in self._learned:
            return False
        self._learned.add(key)
        return True

    def xml(self, text: str) -> str:
        """XML whose contents have no names that were found, nor others that have the form of one."""
        return re.sub("(?<=>)[^<]+", lambda match: self._redactor.redacted_text(match[0]), text)

    def host(self, name: str) -> str:
        return str(self._redactor.replaced(name, "hostname"))

    def uuid(self, uuid: str) -> str:
        return str(self._redactor.replaced(uuid, "uuid"))

    def part(self, part: _S) -> _S:
        return msgspec.convert(self._redactor.replaced(msgspec.to_builtins(part)), type(part))

    def sample(self, sample: StoredSample) -> StoredSample:
        """The sample with other names; its findings stay the same objects while they do not change."""
        given, redacted = self._findings
        if given is not sample.findings or len(redacted) != len(given):
            self._findings = (sample.findings, tuple(map(self.part, sample.findings)))
        return StoredSample(sample.at, self.snapshot(sample.snapshot), self._findings[1])

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        rest = _lasting_part(snapshot)
        redacted = self._redact_once(encoded(rest), rest)
        return replace(
            redacted,
            taken_at=snapshot.taken_at,
            took_seconds=snapshot.took_seconds,
            host=replace(snapshot.host, hostname=redacted.host.hostname),
            devices=tuple(map(self._device, snapshot.devices)),
            processes=tuple(map(self._process, snapshot.processes)),
            bystanders=tuple(map(self._process, snapshot.bystanders)),
        )

    def _redact_once(self, key: bytes, part: _S) -> _S:
        known = self._redacted_parts.get(key)
        if known is None:
            known = self._redacted_parts[key] = self.part(part)
        return known

    def _device(self, row: Device) -> Device:
        redacted = self._redact_once(_text_key(row), row)
        parts = zip(redacted.mig_instances, row.mig_instances, strict=True)
        return replace(
            redacted,
            readings={
                name: value if type(value) is not str else redacted.readings[name]
                for name, value in row.readings.items()
            },
            mig_instances=tuple(replace(new, readings=old.readings) for new, old in parts),
        )

    def _process(self, row: Process) -> Process:
        redacted = self._redact_once(_text_key(row), row)
        return replace(redacted, readings=row.readings, workers_cpu_percent=row.workers_cpu_percent)


def _text_key(row: Device | Process) -> bytes:
    """Key of a row: everything in it except numbers."""
    texts: dict[str, Value] = {name: value for name, value in row.readings.items() if type(value) is str}
    if isinstance(row, Process):
        return encoded(replace(row, readings=texts, workers_cpu_percent=None))
    instances = tuple(replace(instance, readings={}) for instance in row.mig_instances)
    return encoded(replace(row, readings=texts, mig_instances=instances))


def _lasting_part(snapshot: Snapshot) -> Snapshot:
    """Everything but the rows and the numbers."""
    host = replace(
        snapshot.host, cpu_percent=None, memory_used_bytes=None, swap_used_bytes=None, load=None, uptime_seconds=None
    )
    return replace(
        snapshot, taken_at=datetime.min, took_seconds=0.0, host=host, devices=(), processes=(), bystanders=()
    )
