"""An event of the machine (a process, GPU or recorder), its onset, and what still lasts after some events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from gpuwatch.core.model.findings import Certainty
from gpuwatch.core.model.snapshot import Device, Process
from gpuwatch.machine.history.process_labels import command_suffix, process_label

Severity = Literal["error", "warning", "info", "good"]

_START_SECONDS = 5.0
"""Seconds after the start of a recorder in which it notices what had begun earlier."""


class MachineEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a device, a process or a recorder at one moment."""

    at: float
    """Seconds since the epoch."""
    kind: str
    """``process.started``, ``process.exited``, ``throttle.began``, ``throttle.ended``, ``mig.changed`` and so on."""
    text: str
    severity: Severity = "info"
    certainty: Certainty = "fact"
    device_uuid: str | None = None
    """Its device; the first one if it concerns several."""
    device_uuids: tuple[str, ...] = ()
    """All its devices, if it concerns several."""
    pid: int | None = None
    cause: str = ""
    """Cause id (:data:`gpuwatch.core.model.causes.CAUSES`) of its condition; empty without one."""
    occurrence: int = 0
    """Shared by onset, course and end of one occurrence of a condition; 0 for an event without a duration."""
    seen: float | None = None
    """Of an onset or end: when the condition was first or last seen, which is told later; None: at :attr:`at`."""

    @property
    def all_device_uuids(self) -> tuple[str, ...]:
        """Those of its device or devices; empty if it concerns none."""
        return self.device_uuids or ((self.device_uuid,) if self.device_uuid else ())


class LastingCondition(NamedTuple):
    """A condition that lasts, and since when, as another gpuwatch saw it."""

    onset: MachineEvent
    since: float
    """Seconds since the epoch."""
    at_least: bool
    """Whether it may have begun earlier."""


def onset_key(onset: MachineEvent) -> tuple[object, ...]:
    """What makes an onset that of one subject's condition."""
    return (onset.kind, onset.cause, onset.device_uuid, onset.pid)


def still_lasting(events: Iterable[MachineEvent]) -> list[LastingCondition]:
    """What had begun and not ended after some events of recorders; each judges anew."""
    found: dict[int, LastingCondition] = {}
    since = float("-inf")
    for event in events:
        phase = event.kind.rpartition(".")[2]
        if event.kind == "recording.began":
            found.clear()
            since = event.at
        elif phase == "began" and event.occurrence:
            seen = event.at if event.seen is None else event.seen
            found[event.occurrence] = LastingCondition(event, seen, seen - since < _START_SECONDS)
        elif phase == "ended":
            found.pop(event.occurrence, None)
    return list(found.values())


def device_event(device: Device, at: float, kind: str, text: str, severity: Severity) -> MachineEvent:
    """An event of a device."""
    return MachineEvent(
        at=at,
        kind=kind,
        text=f"GPU {device.index}{'' if text.startswith(':') else ' '}{text}",
        severity=severity,
        device_uuid=device.uuid,
    )


def process_event(rows: Sequence[Process], at: float, kind: str, text: str) -> MachineEvent:
    """An event of a process, its name first; ``rows``: one for each device that it concerns."""
    uuids = tuple(dict.fromkeys(row.device_uuid for row in rows if row.device_uuid is not None))
    pid = rows[0].pid
    return MachineEvent(
        at=at,
        kind=kind,
        text=f"{process_label(rows[0])} {text}{command_suffix(rows[0])}",
        device_uuid=uuids[0] if uuids else None,
        device_uuids=uuids if len(uuids) > 1 else (),
        pid=pid,
    )
