"""Events, and the wording they share."""

from __future__ import annotations

from typing import Literal

import msgspec

from gpuwatch.formatting.text import printable, shorten
from gpuwatch.model.snapshot import BAD_STATES as BAD_STATES
from gpuwatch.model.snapshot import Device, Process

Severity = Literal["error", "warning", "info", "good"]
Certainty = Literal["fact", "likely"]

ASLEEP = "asleep"
"""State of a suspended device, which is not queried because that would wake it."""


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
    """Cause id (:data:`gpuwatch.model.findings.CAUSES`) of its condition; empty without one."""
    occurrence: int = 0
    """Shared by onset, course and end of one occurrence of a condition; 0 for an event without a duration."""


def of_device(device: Device, at: float, kind: str, text: str, severity: Severity) -> MachineEvent:
    """An event of a device."""
    return MachineEvent(
        at=at,
        kind=kind,
        text=f"GPU {device.index}{'' if text.startswith(':') else ' '}{text}",
        severity=severity,
        device_uuid=device.uuid,
    )


def of_process(row: Process, at: float, kind: str, text: str) -> MachineEvent:
    """An event of a process."""
    return MachineEvent(at=at, kind=kind, text=f"process {row.pid} {text}", device_uuid=row.device_uuid, pid=row.pid)


def who(row: Process) -> str:
    """``alice's python train.py``, printable and with secrets masked."""
    from gpuwatch.formatting.secrets import mask_text  # slow to import, and not needed for the first frame

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
    """``8 s ago``."""
    return f"{span(seconds)} ago"
