"""A finding: one cause, with its evidence and one action."""

from __future__ import annotations

import datetime
from typing import Literal

import msgspec

Severity = Literal["error", "warning", "info"]
Certainty = Literal["fact", "likely"]

SEVERITY_ORDER: dict[str, int] = {"error": 0, "warning": 1, "info": 2}

END_WORK = "End the work on"
"""How the action begins of a finding whose GPU should do no work until it was reset or replaced."""

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
    def rules_out_work(self) -> bool:
        """Whether no program should be started on its GPU now: an error, or the advice is to end the work there."""
        return self.until is None and (self.severity == "error" or self.action.startswith(END_WORK))

    @property
    def key(self) -> FindingKey:
        return self.id, self.device_uuid, self.pid
