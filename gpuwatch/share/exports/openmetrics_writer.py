"""OpenMetrics text with timestamps, as ``promtool tsdb create-blocks-from openmetrics`` reads it.

The format wants all samples of a metric family together, and the file has them by time: they are collected in a
temporary file first. Names and labels are those of ``gpuwatch exporter``. Readings that are names (performance state,
versions) have no place in it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO

from gpuwatch.core.model.snapshot import Device
from gpuwatch.machine.recording.minute_and_hour_means import Key
from gpuwatch.share import metric_families as families
from gpuwatch.share.exports.exported_period import NUMBERS, ExportedPeriod
from gpuwatch.share.openmetrics_text import Family, label_text, timestamp_text, value_text

_MAX_BUFFERED_CHARS = 8 << 20
_READ_BYTES = 1 << 20
_REPEAT_SECONDS = 60.0
"""Seconds between samples of what lasts: Prometheus forgets a series after five minutes."""
_OF_MIG = tuple((spec, families.family_of(spec, "mig")) for spec in NUMBERS if families.has_mig_family(spec))

_Series = tuple[str, str]
"""Name of the family, labels."""


def write(period: ExportedPeriod) -> Iterator[bytes]:
    """Yields the text in pieces."""
    with tempfile.TemporaryFile() as file:
        spool = _Spool(file)
        if period.step:
            _means(period, spool)
        else:
            _samples(period, spool)
            _part_samples(period, spool)
        chosen_families = [
            families.GPU_INFO,
            *map(families.family_of, NUMBERS),
            families.MIG_INFO,
            *(family for _, family in _OF_MIG),
        ]
        for family in (
            *chosen_families,
            families.PROCESS_INFO,
            *(family for family, *_ in families.PROCESS_FAMILIES),
        ):
            header = family.header().encode()
            for piece in spool.pieces(family.name):
                yield header + piece
                header = b""
        yield from _findings(period)
        yield b"# EOF\n"


class _Spool:
    """Text by series, in a temporary file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._open: dict[_Series, list[str]] = {}
        self._size = 0
        self._places: dict[_Series, list[tuple[int, int]]] = {}

    def sample(self, family: Family, own: str, number: float, stamp: str) -> None:
        """Adds a sample to the series with these labels."""
        self.add((family.name, own), f"{family.sample_name}{own} {value_text(number)} {stamp}\n")

    def add(self, series: _Series, text: str) -> None:
        self._open.setdefault(series, []).append(text)
        self._size += len(text)
        if self._size > _MAX_BUFFERED_CHARS:
            self._flush()

    def _flush(self) -> None:
        for series, texts in self._open.items():
            data = "".join(texts).encode()
            self._places.setdefault(series, []).append((self._file.tell(), len(data)))
            self._file.write(data)
        self._open.clear()
        self._size = 0

    def pieces(self, metric: str) -> Iterator[bytes]:
        self._file.seek(0, 2)
        self._flush()
        for series in sorted(place for place in self._places if place[0] == metric):
            for place, size in self._places[series]:
                self._file.seek(place)
                while size:
                    piece = self._file.read(min(size, _READ_BYTES))
                    size -= len(piece)
                    yield piece


class _InfoSeries:
    """Samples of info series: one now and then, as they never change."""

    def __init__(self, spool: _Spool, family: Family) -> None:
        self._spool, self._family = spool, family
        self._next: dict[str, float] = {}

    def add(self, own: str, at: float) -> None:
        """The series with these labels was there at a time, in seconds since the epoch; times grow."""
        if at >= self._next.get(own, at):
            self._next[own] = at + _REPEAT_SECONDS
            self._spool.sample(self._family, own, 1.0, timestamp_text(at))


def _samples(period: ExportedPeriod, spool: _Spool) -> None:
    known: dict[Key, str] = {}
    about: dict[str, str] = {}
    chosen_families = {spec.id: families.family_of(spec) for spec in NUMBERS}
    infos = _InfoSeries(spool, families.GPU_INFO)
    for times, columns in period.numbers():
        moments = [timestamp_text(at) for at in times]
        for uuid in dict.fromkeys(uuid for uuid, _ in columns):
            if uuid not in about:
                about[uuid] = _info(period, period.device(uuid, times[0]))
            for at in times:
                infos.add(about[uuid], at)
        for (uuid, name), values in columns.items():
            family = chosen_families[name]
            if (uuid, name) not in known:
                known[uuid, name] = label_text(families.gpu_labels(period.device(uuid, times[0]), period.host))
            head, scale = family.sample_name + known[uuid, name], family.scale
            lines = [
                f"{head} {value_text(number if scale == 1 else _scaled_number(number, scale))} {at}\n"
                for at, number in zip(moments, values, strict=True)
                if number is not None
            ]
            if lines:
                spool.add((family.name, known[uuid, name]), "".join(lines))


def _part_samples(period: ExportedPeriod, spool: _Spool) -> None:
    """MIG instances and processes, which are in the samples themselves."""
    last = float("-inf")
    instances, programs = _InfoSeries(spool, families.MIG_INFO), _InfoSeries(spool, families.PROCESS_INFO)
    for at, snapshot, _ in period.samples():
        if at <= last:  # the clock was set back: a series may not
            continue
        last, stamp = at, timestamp_text(at)
        for device in snapshot.devices:
            for instance in device.mig_instances:
                about = families.gpu_labels(device, period.host) | {"mig_instance": instance.id}
                instances.add(label_text(about | {"mig_uuid": instance.uuid, "profile": instance.profile}), at)
                own = label_text(about)
                for spec, family in _OF_MIG:
                    reading = instance.readings.get(spec.id)
                    number = None if reading is None else families.as_family_value(spec, reading)
                    if number is not None:
                        spool.sample(family, own, number, stamp)
        seen: set[str] = set()
        for row in snapshot.processes:
            device_of_row = snapshot.device(row.device_uuid)
            if device_of_row is None:
                continue
            about = families.gpu_labels(device_of_row, period.host) | families.process_labels(row)
            own = label_text(about)
            if own in seen:
                continue
            seen.add(own)
            details = {"name": row.name, "type": row.type, "framework": row.framework, "container": row.container}
            programs.add(label_text(about | details), at)
            for family, reading_id, scale in families.PROCESS_FAMILIES:
                found = row.number(reading_id)
                if found is not None:
                    spool.sample(family, own, _scaled_number(found, scale), stamp)


def _means(period: ExportedPeriod, spool: _Spool) -> None:
    specs = {spec.id: (spec, families.family_of(spec)) for spec in NUMBERS}
    infos = _InfoSeries(spool, families.GPU_INFO)
    for at, device, metrics in period.means():
        own = label_text(families.gpu_labels(device, period.host))
        infos.add(_info(period, device), at)
        for name, summary in metrics.items():
            spec, family = specs[name]
            number = summary.most if spec.counter else summary.mean
            spool.sample(family, own, _scaled_number(number, family.scale), timestamp_text(at))


def _scaled_number(number: float, scale: float) -> float:
    """The number without digits that only the factor brings in."""
    return round(number * scale, 9)


def _info(period: ExportedPeriod, device: Device) -> str:
    """The labels of its :data:`INFO`."""
    about = families.gpu_labels(device, period.host) | families.gpu_identity(device, period.last.driver)
    return label_text(about | {"mig": None})  # its mode may change within the recording


def _findings(period: ExportedPeriod) -> Iterator[bytes]:
    """1 as long as a finding held, then 0. Times of one series must grow: what overlaps is one."""
    held: dict[str, list[tuple[float, float]]] = {}
    for since, until, finding in period.findings():
        about: dict[str, object] = {"cause": finding.id, "severity": finding.severity}
        if finding.device_uuid is not None:
            about |= families.gpu_labels(period.device(finding.device_uuid, since), period.host)
        else:
            about["host"] = period.host
        since, until = max(since, period.begin), min(until, period.end)
        times = held.setdefault(label_text(about), [])
        if times and since <= times[-1][1] + 1.0:
            times[-1] = (times[-1][0], max(times[-1][1], until))
        else:
            times.append((since, until))
    header = families.FINDING.header()
    for own, times in held.items():
        for since, until in times:
            lines, at = [], since
            while at < until:
                lines.append(f"{families.FINDING.sample_name}{own} 1 {timestamp_text(at)}\n")
                at += _REPEAT_SECONDS
            lines.append(f"{families.FINDING.sample_name}{own} 1 {timestamp_text(until)}\n")
            if until < period.end:
                lines.append(f"{families.FINDING.sample_name}{own} 0 {timestamp_text(until + 0.5)}\n")
            yield (header + "".join(lines)).encode()
            header = ""
