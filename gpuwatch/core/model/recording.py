"""What is in a recording, and whether it is whole. ``gpuwatch.recording/1``, ``gpuwatch.recording-check/1``."""

from __future__ import annotations

import datetime

import msgspec

from gpuwatch.core.model.findings import Severity


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
