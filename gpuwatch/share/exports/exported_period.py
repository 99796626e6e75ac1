"""What of a recording is exported: a period of time, how densely, and whether with the names in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.masking.masked_documents import masked
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.metrics import METRICS, Unit
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Device, Snapshot
from gpuwatch.machine.history.abstract_sample_store import SeriesKey
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.process_usage import ProcessLife
from gpuwatch.machine.history.sample_frames import StoredSample
from gpuwatch.machine.recording.database_rows import RecordedFinding
from gpuwatch.machine.recording.minute_and_hour_means import BLOCK_SECONDS, HOUR, MINUTE, Summary, interval_begin
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.sample_redaction import SampleRedactor
from gpuwatch.machine.recording.time_expressions import parse_begin, parse_moment, time_text

STEPS = {"sample": 0, "1min": MINUTE, "1h": HOUR}
"""Seconds of the means that are exported; 0: the samples themselves."""
NUMERIC_METRICS = tuple(spec for spec in METRICS if spec.unit is not Unit.NAME)
_NUMERIC_IDS = frozenset(spec.id for spec in NUMERIC_METRICS)

_MAX_SECONDS_SINCE_EPOCH = 1e11
"""Seconds since the epoch: some thousand years."""


class Means(NamedTuple):
    """The means of one device over a minute or an hour."""

    at: int
    """Begin, in seconds since the epoch."""
    device: Device
    metrics: dict[str, Summary]


class ExportedPeriod:
    """The part of a recording between two times. Times are in seconds since the epoch, and both ends are part of it."""

    def __init__(self, recording: Recording, begin: float, end: float, step: int = 0) -> None:
        self.recording, self.begin, self.end, self.step = recording, begin, end, step
        last = recording.at(end)
        if last is None:
            raise GpuwatchError(
                f"{printable_path(recording.path)}: no sample can be read", hint="see gpuwatch record check"
            )
        self.last: Snapshot = last.snapshot
        self._lasting = (last.at, {_finding_key(finding) for finding in last.findings if finding.until is None})
        """The time of the last sample, and the findings that had not ended then."""
        self._devices: dict[str, Device] = {device.uuid: device for device in self.last.devices}

    @property
    def host(self) -> str | None:
        hostnames = [run.hostname for run in self.recording.sessions if run.hostname]
        return self.last.host.hostname or (hostnames[-1] if hostnames else None)

    def samples(self) -> Iterator[StoredSample]:
        """The samples, oldest first."""
        return self.recording.snapshots(self.begin, self.end)

    def numbers(self) -> Iterator[tuple[Sequence[float], dict[SeriesKey, Sequence[float | None]]]]:
        """Times of some samples, and for each metric of each device as many values, None where there was none.

        Times increase; samples out of order, which a damaged file may have, are skipped.
        """
        last = float("-inf")
        for times, columns in self.recording.numbers(self.begin, self.end, _NUMERIC_IDS):
            indexes = list[int]()
            for index, at in enumerate(times):
                if at > last:
                    indexes.append(index)
                    last = at
            if len(indexes) < len(times):
                times = [times[index] for index in indexes]
                columns = {key: [column[index] for index in indexes] for key, column in columns.items()}
            if times:
                yield times, columns

    def means(self) -> Iterator[Means]:
        """The means in steps of :attr:`step` seconds, oldest first, of each device in turn."""
        block_seconds = BLOCK_SECONDS[self.step]
        at = interval_begin(self.begin, block_seconds)
        while at <= self.end:
            last = min(at + block_seconds - 1, self.end)
            first = max(at, interval_begin(self.begin, self.step))
            for begin, point in self.recording.summaries(self.step, first, last, _NUMERIC_IDS).items():
                by_device: dict[str, dict[str, Summary]] = {}
                for (uuid, name), summary in point.items():
                    by_device.setdefault(uuid, {})[name] = summary
                for uuid, metrics in by_device.items():
                    yield Means(begin, self.device(uuid, begin), metrics)
            at += block_seconds

    def device(self, uuid: str, at: float) -> Device:
        """The device with this UUID; ``at``: a time at which it was there."""
        device = self._devices.get(uuid)
        if device is None:
            sample = self.recording.at(at + self.step)
            sampled = sample.snapshot.device(uuid) if sample is not None else None
            device = sampled or Device(index=-1, uuid=uuid, name="", pci_bus_id="", readings={}, missing={})
            self._devices[uuid] = device
        return device

    def index(self, uuid: str | None, at: float) -> int | None:
        """NVML's index of a device; None if it is not known."""
        index = -1 if uuid is None else self.device(uuid, at).index
        return index if index >= 0 else None

    def events(self) -> list[MachineEvent]:
        events = [event for event in self.recording.events() if self.begin <= event.at <= self.end]
        return sorted(events, key=lambda event: event.at)

    def findings(self) -> list[RecordedFinding]:
        """The findings that held at some time of it, by onset."""
        at, lasting = self._lasting
        # A file has the end of a finding, and otherwise when it changed last.
        return [
            finding._replace(until=max(finding.until, at)) if _finding_key(finding.finding) in lasting else finding
            for finding in self.recording.findings(self.begin, self.end)
            if _is_valid_time(finding.since) and _is_valid_time(finding.until)
        ]

    def process_lifetimes(self) -> list[ProcessLife]:
        """The processes that were seen on a GPU in it, by the time at which they were first seen."""
        lifetimes = self.recording.processes(self.begin, self.end)
        return [life for life in lifetimes if _is_valid_time(life.first) and _is_valid_time(life.last)]


def _is_valid_time(at: object) -> bool:
    """Whether it can be a time; a damaged file may have anything."""
    return isinstance(at, (int, float)) and -_MAX_SECONDS_SINCE_EPOCH < at < _MAX_SECONDS_SINCE_EPOCH


def _finding_key(finding: Finding) -> tuple[object, ...]:
    return (finding.id, finding.device_uuid, finding.pid, finding.since)


def select_period(recording: Recording, since: str | None, until: str | None, step: int = 0) -> ExportedPeriod:
    """The period between two times as people write them, of a recording that has samples; all without them.

    :class:`UsageError` if nothing was recorded at that time.
    """
    assert recording.begin is not None
    assert recording.end is not None
    # Means are kept for longer than samples.
    first = recording.begin
    if step:
        first = min(first, recording.summaries_begin(step))
    # The recording begins and ends with an event.
    events = [event.at for event in recording.events()]
    begin = min([first, *events[:1]]) if since is None else parse_begin(since, recording.end)
    end = max([recording.end, *events[-1:]]) if until is None else parse_moment(until, recording.end)
    if begin > end:
        raise UsageError(f"the start {time_text(begin)} is after the end {time_text(end)}")
    if begin > recording.end or end < first:
        raise UsageError(
            f"nothing was recorded from {time_text(begin)} to {time_text(end)}",
            hint=f"{printable_path(recording.path)} has {time_text(first)} to {time_text(recording.end)}",
        )
    return ExportedPeriod(recording, begin, end, step)


class RedactedPeriod(ExportedPeriod):
    """The same period; names are replaced as ``gpuwatch record cut --redact`` does it."""

    def __init__(self, period: ExportedPeriod, runs: Iterable[Run] = ()) -> None:
        """Reads all of it once, to find what is private. ``runs``: those that are exported with it."""
        super().__init__(period.recording, period.begin, period.end, period.step)
        redactor = self._redactor = SampleRedactor()
        for sample in period.samples() if not period.step else ():
            redactor.learn(sample)
        redactor.learn_parts(self.last.devices)
        redactor.learn_parts(period.events())
        redactor.learn_parts(finding.finding for finding in period.findings())
        redactor.learn_parts(period.process_lifetimes())
        self.runs = [masked(run) for run in runs]
        redactor.learn_parts(self.runs)
        self.runs = [redactor.part(run) for run in self.runs]
        uuids = [device.uuid for device in self.last.devices]
        uuids += [uuid for event in period.events() for uuid in event.all_device_uuids]
        uuids += [uuid for finding in period.findings() if (uuid := finding.finding.device_uuid)]
        uuids += [lifetime.device_uuid for lifetime in period.process_lifetimes() if lifetime.device_uuid]
        self._original_uuid = {redactor.uuid(uuid): uuid for uuid in uuids}
        """UUIDs of devices by those that stand for them."""
        self._redacted_devices: dict[str, Device] = {}
        self._host = super().host
        self.last = redactor.snapshot(self.last)

    def _uuid(self, uuid: str) -> str:
        redacted = self._redactor.uuid(uuid)
        self._original_uuid[redacted] = uuid
        return redacted

    @property
    def host(self) -> str | None:
        return self._redactor.host(self._host) if self._host is not None else None

    def samples(self) -> Iterator[StoredSample]:
        return map(self._redactor.sample, super().samples())

    def numbers(self) -> Iterator[tuple[Sequence[float], dict[SeriesKey, Sequence[float | None]]]]:
        for times, columns in super().numbers():
            yield times, {(self._uuid(uuid), name): values for (uuid, name), values in columns.items()}

    def device(self, uuid: str, at: float) -> Device:
        """The device with this UUID, which may be the original one too."""
        redacted = self._redacted_devices.get(uuid)
        if redacted is None:
            original = self._original_uuid.get(uuid, uuid)
            redacted = self._redacted_devices[uuid] = self._redactor.part(super().device(original, at))
            self._original_uuid[redacted.uuid] = original
        return redacted

    def events(self) -> list[MachineEvent]:
        return [self._redactor.part(event) for event in super().events()]

    def findings(self) -> list[RecordedFinding]:
        return [finding._replace(finding=self._redactor.part(finding.finding)) for finding in super().findings()]

    def process_lifetimes(self) -> list[ProcessLife]:
        return [self._redactor.part(lifetime) for lifetime in super().process_lifetimes()]
