"""NDJSON: a document of a published schema on each line, in the order of time.

``gpuwatch.snapshot/1`` for each sample, ``gpuwatch.event/1`` for each event, and ``gpuwatch.finding/1`` for each
finding, where it began. With means instead of samples there are ``gpuwatch.means/1``, one for each device.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from operator import itemgetter

import msgspec
from msgspec.structs import replace

from gpuwatch.core.model.json_codec import to_json
from gpuwatch.core.model.recording import EventLine, FindingLine, MeansLine, Statistics
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.share.exports.exported_period import ExportedPeriod


def write(period: ExportedPeriod) -> Iterator[bytes]:
    """Yields the lines, in the order of time."""
    host, simulated = period.host, period.last.simulated
    samples = ((at, replace(snapshot, findings=findings)) for at, snapshot, findings in period.samples())
    events = (
        (
            event.at,
            EventLine(
                at=utc_datetime(event.at), host=host, simulated=simulated, kind=event.kind, text=event.text,
                severity=event.severity, certainty=event.certainty, device_uuid=event.device_uuid,
                device_uuids=event.device_uuids, pid=event.pid, cause=event.cause, occurrence=event.occurrence,
            ),
        )
        for event in period.events()
    )  # fmt: skip
    findings = (
        (
            max(since, period.begin),
            FindingLine(
                since=utc_datetime(since), until=utc_datetime(until), host=host, simulated=simulated, finding=finding
            ),
        )
        for since, until, finding in sorted(period.findings(), key=itemgetter(0))
    )
    for _, document in heapq.merge(_means(period) if period.step else samples, events, findings, key=itemgetter(0)):
        yield to_json(document, indent=0).encode("utf-8", "backslashreplace")


def _means(period: ExportedPeriod) -> Iterator[tuple[float, msgspec.Struct]]:
    host, simulated = period.host, period.last.simulated
    for at, device, metrics in period.means():
        line = MeansLine(
            at=utc_datetime(at),
            seconds=period.step,
            host=host,
            simulated=simulated,
            device_uuid=device.uuid,
            device_index=period.index(device.uuid, at),
            metrics={
                name: Statistics(minimum=entry.least, mean=entry.mean, maximum=entry.most, samples=entry.samples)
                for name, entry in metrics.items()
            },
        )
        yield float(at), line
