"""What is in a recording, whether it is whole, and the lines of its NDJSON export besides snapshots.

``gpuwatch.recording/1``, ``recording-check/1``; lines of the export: ``event/1``, ``finding/1``, ``means/1``.
"""

from __future__ import annotations

import datetime

import msgspec

from gpuwatch.core.model.findings import Certainty, Finding, Severity


class RecordedGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU in the last sample."""

    index: int
    """NVML's index."""
    uuid: str
    """NVML's UUID."""
    name: str
    """Name of its model."""


class RecordedProblem(msgspec.Struct, frozen=True, kw_only=True):
    """An error or warning, and the time for which it held."""

    cause: str
    """Its page: gpuwatch cause ID."""
    severity: Severity
    """``error`` or ``warning``."""
    title: str
    """What it is, in a sentence."""
    device_uuid: str | None
    """Its GPU; null if it concerns none or several."""
    pid: int | None
    """Its process; null if it concerns none or several."""
    since: datetime.datetime | None
    """Null if the entry is damaged."""
    until: datetime.datetime | None
    """When it was last seen; null if the entry is damaged."""


class RecordingGap(msgspec.Struct, frozen=True, kw_only=True):
    """A time without samples."""

    begin: datetime.datetime | None
    """The last sample before it; null if its time is damaged."""
    end: datetime.datetime | None
    """The first sample after it; null if its time is damaged."""
    seconds: float
    """How long it lasted."""


class RecorderRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of gpuwatch record that wrote to the file."""

    began: datetime.datetime | None
    """Null if the entry is damaged."""
    ended: datetime.datetime | None
    """Null if it is running, or was killed."""
    ended_by: str | None
    """Why it ended: by SIGTERM."""
    interval_seconds: float
    """Seconds between samples that it was told."""
    gpuwatch_version: str
    """Version that wrote it."""


class RecordingInfo(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.recording/1"):
    """What is in a recording."""

    source: str
    """Name of the file."""
    size_bytes: int
    """Bytes of the file, without a write-ahead log beside it."""
    file_schema: int
    """Version of the file's tables."""
    notes: dict[str, str]
    """What is noted about the file: that it is a cut, that it is redacted."""
    begin: datetime.datetime | None
    """The first sample; null if there is none."""
    end: datetime.datetime | None
    """The last sample; null if there is none."""
    samples: int
    """Samples that can be shown."""
    samples_hidden: int
    """Samples whose time was recorded again after the clock was set back."""
    host: str | None
    """Host name in the last sample."""
    simulated: bool | None
    """Whether its GPUs are simulated; null without a sample."""
    driver_version: str | None
    """Version of the driver in the last sample."""
    gpus: tuple[RecordedGpu, ...]
    """The GPUs in the last sample."""
    processes: int
    """Processes that used a GPU."""
    users: int
    """Users of these processes."""
    events: int
    """Number of events."""
    problems: tuple[RecordedProblem, ...]
    """Errors and warnings, the earliest first."""
    gaps: tuple[RecordingGap, ...]
    """Times without samples, the earliest first."""
    recorders: tuple[RecorderRun, ...]
    """The runs of gpuwatch record, the earliest first."""


class RecordingCheck(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.recording-check/1"):
    """Whether all of a recording can be read."""

    source: str
    """Name of the file."""
    whole: bool
    """Whether nothing is damaged; gaps are no damage."""
    damaged: tuple[str, ...]
    """The damaged parts, in words."""
    file_schema: int | None
    """Version of the file's tables; null if it cannot be read."""
    samples: int | None
    """Samples that can be read; null if none can."""
    gaps: tuple[RecordingGap, ...]
    """Times without samples, the earliest first."""


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
