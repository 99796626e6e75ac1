"""An alert: the onset or end of a finding, ``gpuwatch.alert/1``."""

from __future__ import annotations

import datetime
from typing import Literal

import msgspec

from gpuwatch.core.model.findings import Finding

AlertPhase = Literal["onset", "end"]


class Alert(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.alert/1"):
    """What a command or webhook receives: the onset or end of a finding."""

    phase: AlertPhase
    """``onset`` or ``end``."""
    at: datetime.datetime
    """When it was seen first, or last."""
    host: str | None
    """Name of the machine; null if unknown."""
    simulated: bool
    finding: Finding
    """The finding, with secrets masked."""
    device_index: int | None = None
    """NVML's index of its GPU; null without one."""
    lasted_seconds: float | None = None
    """At its end: seconds from its onset."""
    returns: int = 0
    """At its end: how often it went and came back within the time for which ends are held."""
    held_back: int = 0
    """Onsets that were not reported before this one because there were too many."""
