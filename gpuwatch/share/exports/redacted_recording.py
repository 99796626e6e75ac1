"""A stretch of a recording without users, hosts, paths, addresses and ids: each has the same other name everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpuwatch.core.masking.mask_secrets import masked
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Device
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.sample_store import KeptSample
from gpuwatch.machine.recording.minute_means import Key
from gpuwatch.machine.recording.process_lifetimes import ProcessLife
from gpuwatch.machine.recording.row_decoding import RecordedFinding
from gpuwatch.machine.recording.sample_redaction import SampleRedactor
from gpuwatch.share.exports.exported_range_and_metrics import Means, Stretch


class RedactedStretch(Stretch):
    """The same stretch; names are replaced as ``gpuwatch record cut --redact`` does it."""

    def __init__(self, stretch: Stretch, runs: Iterable[Run] = ()) -> None:
        """Reads all of it once, to know what is private. ``runs``: are shown with it."""
        super().__init__(stretch.recording, stretch.begin, stretch.end, stretch.step)
        private = self._private = SampleRedactor()
        for kept in stretch.samples() if not stretch.step else ():
            private.learn(kept)
        private.learn_parts(self.last.devices)
        private.learn_parts(stretch.events())
        private.learn_parts(finding.finding for finding in stretch.findings())
        private.learn_parts(stretch.lives())
        self.runs = [masked(run) for run in runs]
        private.learn_parts(self.runs)
        self.runs = [private.part(run) for run in self.runs]
        self._original_uuid: dict[str, str] = {}
        """UUIDs of devices by those that stand for them."""
        self._redacted_uuid: dict[str, str] = {}
        self._redacted: dict[str, Device] = {}
        self._host = super().host
        for device in self.last.devices:
            self._uuid(device.uuid)
        for event in stretch.events():
            for uuid in (event.device_uuid, *event.device_uuids):
                self._uuid(uuid or "")
        for finding in stretch.findings():
            self._uuid(finding.finding.device_uuid or "")
        for life in stretch.lives():
            self._uuid(life.device_uuid or "")
        self.last = private.snapshot(self.last)

    def _uuid(self, uuid: str) -> str:
        known = self._redacted_uuid.get(uuid)
        if known is None:
            known = self._redacted_uuid[uuid] = self._private.uuid(uuid)
            self._original_uuid[known] = uuid
        return known

    @property
    def host(self) -> str | None:
        return self._private.host(self._host) if self._host is not None else None

    def samples(self) -> Iterator[KeptSample]:
        return map(self._private.sample, super().samples())

    def numbers(self) -> Iterator[tuple[Sequence[float], dict[Key, Sequence[float | None]]]]:
        for times, columns in super().numbers():
            yield times, {(self._uuid(uuid), name): values for (uuid, name), values in columns.items()}

    def means(self) -> Iterator[Means]:
        for at, by_device in self._summaries():
            for uuid, metrics in by_device.items():
                yield Means(at, self.device(self._uuid(uuid), at), metrics)

    def device(self, uuid: str, at: float) -> Device:
        known = self._redacted.get(uuid)
        if known is None:
            known = self._redacted[uuid] = self._private.part(super().device(self._original_uuid.get(uuid, uuid), at))
        return known

    def events(self) -> list[MachineEvent]:
        return [self._private.part(event) for event in super().events()]

    def findings(self) -> list[RecordedFinding]:
        return [finding._replace(finding=self._private.part(finding.finding)) for finding in super().findings()]

    def lives(self) -> list[ProcessLife]:
        return [self._private.part(life) for life in super().lives()]
