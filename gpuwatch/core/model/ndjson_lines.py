"""Lines of NDJSON exports beside snapshots: events, findings, means."""

from __future__ import annotations

import datetime

import msgspec

from gpuwatch.core.model.findings import Certainty, Finding


class EventLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.event/1"):
    """Something that happened on a machine."""

    at: datetime.datetime
    """When it happened."""
    host: str | None
    """Name of the machine; null if unknown."""
    simulated: bool
    kind: str
    """``process.started``, ``throttle.began``, ``mig.changed`` and so on."""
    text: str
    """What happened, in words."""
    severity: str
    """``error``, ``warning``, ``info`` or ``good``."""
    certainty: Certainty
    device_uuid: str | None
    """UUID of its GPU, the first one if it concerns several; null without one."""
    device_uuids: tuple[str, ...] = ()
    """UUIDs of all its GPUs if it concerns several."""
    pid: int | None = None
    """Process id; null if it is not about a process."""
    cause: str = ""
    """Id of the cause of its condition; empty without one."""
    occurrence: int = 0
    """A number that onset, course and end of one condition share; 0 without a duration."""


class FindingLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.finding/1"):
    """A finding and the time for which it held."""

    since: datetime.datetime
    """When it was seen first."""
    until: datetime.datetime
    """When it was seen last."""
    host: str | None
    """Name of the machine; null if unknown."""
    simulated: bool
    finding: Finding
    """The finding."""


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over some time."""

    minimum: float
    """Smallest value."""
    mean: float
    """Mean of the samples."""
    maximum: float
    """Largest value."""
    samples: int
    """Samples that had a value."""


class MeansLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.means/1"):
    """The metrics of one GPU over a minute or an hour."""

    at: datetime.datetime
    """When the time begins."""
    seconds: int
    """How long it is."""
    host: str | None
    """Name of the machine; null if unknown."""
    simulated: bool
    device_uuid: str
    device_index: int | None
    """NVML's index of the GPU; null if unknown."""
    metrics: dict[str, Statistics]
    """By id of the metric; those without a value are absent."""
