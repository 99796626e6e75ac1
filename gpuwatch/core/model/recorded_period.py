"""A stretch of a recording: graphs, processes, runs, events and findings on one clock. ``gpuwatch.period/1``."""

from __future__ import annotations

import datetime
from typing import Literal

import msgspec

from gpuwatch.core.model.findings import SEVERITY_ORDER, Finding
from gpuwatch.core.model.gpu_time_usage import Usage, UsageGap

GRAPHED = (
    "utilization.gpu_percent",
    "memory.used_bytes",
    "power.draw_watts",
    "temperature.gpu_celsius",
    "clocks.sm_mhz",
)
"""The metrics that have a graph, by id."""

ChangeKind = Literal["process", "setting", "reading", "event", "recording"]


class PeriodSeries(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of a GPU; null where nothing was recorded. Point ``n`` is of the ``n``-th step."""

    least: tuple[float | None, ...]
    """The smallest value in each step."""
    mean: tuple[float | None, ...]
    """The mean in each step."""
    most: tuple[float | None, ...]
    """The largest value in each step."""


class PeriodDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU over the time of the document."""

    index: int
    uuid: str
    name: str
    series: dict[str, PeriodSeries]
    """By id of the metric."""
    tops: dict[str, float] = {}
    """Where the axis of a graph ends: total memory, power limit, maximum clock."""


class PeriodProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a GPU, from when it was first seen there to when it was last seen."""

    pid: int
    device_uuid: str | None
    user: str | None
    program: str | None
    """Such as ``train.py``."""
    begin: datetime.datetime
    """First seen; it may be before the start of the document."""
    end: datetime.datetime
    """Last seen, as far as recorded."""


class PeriodRun(msgspec.Struct, frozen=True, kw_only=True):
    """A saved run of a probe or program on this machine."""

    name: str
    """Its configuration; of a watched program, its file."""
    verdict: str
    begin: datetime.datetime
    """When it was started."""
    end: datetime.datetime | None
    """When it ended; null if that is not known."""
    device_uuids: tuple[str, ...] = ()
    """The GPUs on which it was seen, or that its framework had."""


class PeriodEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened at one moment."""

    at: datetime.datetime
    """When it happened."""
    kind: str
    """``process.started``, ``throttle.began`` and so on."""
    severity: str
    text: str
    """The event in words."""
    device_uuids: tuple[str, ...] = ()
    """The GPUs that it concerns; empty if it concerns all."""


class PeriodFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding and the time for which it held."""

    begin: datetime.datetime
    """Since when; it may be before the start of the document."""
    end: datetime.datetime
    """Until when, as far as recorded."""
    finding: Finding
    """The finding, as it was recorded last."""
    active: bool = False
    """Whether it still held in the last sample of the document."""

    @property
    def rank(self) -> tuple[bool, bool, int, datetime.datetime]:
        """The smaller, the more important: problems before notes, what still holds first, then severity, then time."""
        return (self.finding.severity == "info", not self.active, SEVERITY_ORDER[self.finding.severity], self.begin)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Something that changed before the first problem. Whether it is the cause is not known."""

    at: datetime.datetime
    """When it changed, or by when."""
    kind: ChangeKind
    """What kind of thing changed."""
    text: str
    """The change in words."""


class Period(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.period/1"):
    """A stretch of a recording."""

    source: str
    """Name of the recording."""
    host: str | None
    simulated: bool
    gpuwatch_version: str
    redacted: bool = False
    begin: datetime.datetime
    """Start of the first step."""
    end: datetime.datetime
    """End of the last step."""
    step_seconds: float
    """Seconds of a step of the graphs."""
    gaps: tuple[UsageGap, ...] = ()
    """Times that were not recorded."""
    primary: str | None = None
    """Id of the most important finding; null if there was none, unknown if no sample of this time could be read."""
    devices: tuple[PeriodDevice, ...] = ()
    """The GPUs by index."""
    processes: tuple[PeriodProcess, ...] = ()
    """The processes that used a GPU, one for each GPU, the earliest first."""
    runs: tuple[PeriodRun, ...] = ()
    """Saved runs of this machine in this time."""
    events: tuple[PeriodEvent, ...] = ()
    """The events, oldest first."""
    findings: tuple[PeriodFinding, ...] = ()
    """The findings, the earliest onset first."""
    trouble: datetime.datetime | None = None
    """Onset of the first finding that is a problem; null if there is none."""
    changes_begin: datetime.datetime | None = None
    """Since when changes were looked for."""
    changes: tuple[Change, ...] = ()
    """What changed before :attr:`trouble`, oldest first."""
    usage: Usage
    """GPU time by process in this time."""
    notes: tuple[str, ...] = ()
    """What else readers must know of the recording."""
