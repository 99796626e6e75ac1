"""A period of a recording without users, hosts, paths, addresses and ids: each has the same other name everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpuwatch.core.masking.mask_secrets import masked
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Device
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.sample_frames import StoredSample
from gpuwatch.machine.recording.database_rows import RecordedFinding
from gpuwatch.machine.recording.minute_and_hour_means import Key
from gpuwatch.machine.recording.process_lifetimes import ProcessLife
from gpuwatch.machine.recording.sample_redaction import SampleRedactor
from gpuwatch.share.exports.exported_period import ExportedPeriod


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
        uuids += [uuid for event in period.events() for uuid in (event.device_uuid, *event.device_uuids) if uuid]
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

    def numbers(self) -> Iterator[tuple[Sequence[float], dict[Key, Sequence[float | None]]]]:
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
