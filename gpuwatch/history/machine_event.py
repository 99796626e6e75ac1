"""One event, and the words that events share."""

from __future__ import annotations

from typing import Literal

import msgspec

from gpuwatch.formatting.text import printable, shorten
from gpuwatch.model.snapshot import BAD_STATES as BAD_STATES
from gpuwatch.model.snapshot import Device, Process

Severity = Literal["error", "warning", "info", "good"]
Certainty = Literal["fact", "likely"]

ASLEEP = "asleep"
"""State of a device that is left alone, because a question would wake it: nothing new is known of it."""


class MachineEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event."""

    at: float
    """Seconds since the epoch."""
    kind: str
    """``process.started``, ``process.exited``, ``throttle.began``, ``throttle.ended``, ``mig.changed`` and so on."""
    text: str
    severity: Severity = "info"
    certainty: Certainty = "fact"
    device_uuid: str | None = None
    pid: int | None = None
    cause: str = ""
    """The cause id (:data:`gpuwatch.model.findings.CAUSES`) of the condition that it belongs to; empty without one."""
    occurrence: int = 0
    """Onset, course and end of one occurrence of a condition share this number; 0 for what is over at once."""


def of_device(
    device: Device,
    at: float,
    kind: str,
    text: str,
    severity: Severity,
    certainty: Certainty = "fact",
    cause: str = "",
) -> MachineEvent:
    """Something that happened to a device, or on it."""
    return MachineEvent(
        at=at,
        kind=kind,
        text=f"GPU {device.index}{'' if text.startswith(':') else ' '}{text}",
        severity=severity,
        certainty=certainty,
        device_uuid=device.uuid,
        cause=cause,
    )


def of_process(row: Process, at: float, kind: str, text: str) -> MachineEvent:
    """Something that a process did."""
    return MachineEvent(at=at, kind=kind, text=f"process {row.pid} {text}", device_uuid=row.device_uuid, pid=row.pid)


def who(row: Process) -> str:
    """``alice's python train.py``: harmless, without secrets."""
    from gpuwatch.formatting.secrets import mask_text  # its patterns are many, and events come later

    command = mask_text(printable(row.command or row.name or ""))
    program, _, rest = command.partition(" ")
    short = shorten(f"{program.rpartition('/')[2]} {rest}".strip(), 60)
    user = f"{printable(row.user)}'s " if row.user else ""
    return f"{user}{short or 'process'}"


def span(seconds: float) -> str:
    """``8 s``, ``3 min``, ``2.5 h``."""
    if seconds < 100:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def ago(seconds: float) -> str:
    """How long something is past, for a line: ``8 s ago``."""
    return f"{span(seconds)} ago"
