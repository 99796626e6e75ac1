"""A finding: one cause, with its evidence and one action; and the alert that reports it, ``gpuwatch.alert/1``."""

from __future__ import annotations

import datetime
from typing import Literal

import msgspec

Severity = Literal["error", "warning", "info"]
Certainty = Literal["fact", "likely"]

SEVERITY_ORDER: dict[str, int] = {"error": 0, "warning": 1, "info": 2}


FindingKey = tuple[str, str | None, int | None]
"""What tells the findings of one moment apart: cause, GPU, process."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A recognized cause.

    ``certainty`` is ``fact`` if a driver or framework reported it, ``likely`` if it is inferred.
    """

    id: str
    """A cause id such as ``driver.missing`` (:data:`gpuwatch.core.model.causes.CAUSES`)."""
    severity: Severity
    certainty: Certainty
    title: str
    evidence: tuple[str, ...] = ()
    """Log lines and numbers as observed."""
    action: str = ""
    """What to do, in one sentence."""
    device_uuid: str | None = None
    pid: int | None = None
    since: datetime.datetime | None = None
    """When it was first seen; None for a finding from a single sample or a log."""
    may_be_older: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether it may have begun before ``since``: the first sample that could show it did. Left out if not."""
    last: datetime.datetime | None = None
    """When it was last seen, if it is no longer, but for too short a time to be over."""
    until: datetime.datetime | None = None
    """When it was last seen, if it is over."""

    @property
    def key(self) -> FindingKey:
        return self.id, self.device_uuid, self.pid


Phase = Literal["onset", "end"]


class Alert(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.alert/1"):
    """What a command or webhook is told: the onset or end of a finding."""

    phase: Phase
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
