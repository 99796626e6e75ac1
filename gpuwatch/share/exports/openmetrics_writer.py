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
from gpuwatch.machine.history.abstract_sample_store import SeriesKey
from gpuwatch.share import metric_families as families
from gpuwatch.share.exports.exported_period import NUMERIC_METRICS, ExportedPeriod
from gpuwatch.share.openmetrics_text import Family, label_text, timestamp_text, value_text

_MAX_BUFFERED_CHARS = 8 << 20
_READ_BYTES = 1 << 20
_REPEAT_SECONDS = 60.0
"""Seconds between samples of what lasts: Prometheus forgets a series after five minutes."""
_MIG_FAMILIES = tuple(
    (spec, families.family_of(spec, "mig")) for spec in NUMERIC_METRICS if families.has_mig_family(spec)
)

_SeriesKey = tuple[str, str]
"""Name of the family, labels."""


def write(period: ExportedPeriod) -> Iterator[bytes]:
    """Yields the text in pieces."""
    with tempfile.TemporaryFile() as file:
        spool = _SeriesSpool(file)
        if period.step:
            _write_means(period, spool)
        else:
            _write_samples(period, spool)
            _write_mig_and_process_samples(period, spool)
        device_families = [
            families.GPU_INFO,
            *map(families.family_of, NUMERIC_METRICS),
            families.MIG_INFO,
            *(family for _, family in _MIG_FAMILIES),
        ]
        process_families = (families.PROCESS_INFO, *(family for family, *_ in families.PROCESS_FAMILIES))
        for family in (*device_families, *process_families):
            header = family.header().encode()
            for piece in spool.pieces(family.name):
                yield header + piece
                header = b""
        yield from _finding_samples(period)
        yield b"# EOF\n"


class _SeriesSpool:
    """Text by series, in a temporary file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._buffered: dict[_SeriesKey, list[str]] = {}
        self._buffered_chars = 0
        self._chunks: dict[_SeriesKey, list[tuple[int, int]]] = {}

    def add_sample(self, family: Family, labels: str, number: float, timestamp: str) -> None:
        """Adds a sample to the series with these labels."""
        self.add((family.name, labels), f"{family.sample_name}{labels} {value_text(number)} {timestamp}\n")

    def add(self, series: _SeriesKey, text: str) -> None:
        self._buffered.setdefault(series, []).append(text)
        self._buffered_chars += len(text)
        if self._buffered_chars > _MAX_BUFFERED_CHARS:
            self._flush()

    def _flush(self) -> None:
        for series, texts in self._buffered.items():
            data = "".join(texts).encode()
            self._chunks.setdefault(series, []).append((self._file.tell(), len(data)))
            self._file.write(data)
        self._buffered.clear()
        self._buffered_chars = 0

    def pieces(self, metric: str) -> Iterator[bytes]:
        self._file.seek(0, 2)
        self._flush()
        for series in sorted(key for key in self._chunks if key[0] == metric):
            for offset, size in self._chunks[series]:
                self._file.seek(offset)
                while size:
                    piece = self._file.read(min(size, _READ_BYTES))
                    size -= len(piece)
                    yield piece


class _InfoSeries:
    """Samples of info series: one now and then, as they never change."""

    def __init__(self, spool: _SeriesSpool, family: Family) -> None:
        self._spool, self._family = spool, family
        self._next_at: dict[str, float] = {}

    def add(self, labels: str, at: float) -> None:
        """The series with these labels was there at a time, in seconds since the epoch; times grow."""
        if at >= self._next_at.get(labels, at):
            self._next_at[labels] = at + _REPEAT_SECONDS
            self._spool.add_sample(self._family, labels, 1.0, timestamp_text(at))


def _write_samples(period: ExportedPeriod, spool: _SeriesSpool) -> None:
    label_texts: dict[SeriesKey, str] = {}
    gpu_info_labels: dict[str, str] = {}
    family_by_metric = {spec.id: families.family_of(spec) for spec in NUMERIC_METRICS}
    info_series = _InfoSeries(spool, families.GPU_INFO)
    for times, columns in period.numbers():
        timestamps = [timestamp_text(at) for at in times]
        for uuid in dict.fromkeys(uuid for uuid, _ in columns):
            if uuid not in gpu_info_labels:
                gpu_info_labels[uuid] = _gpu_info_labels(period, period.device(uuid, times[0]))
            for at in times:
                info_series.add(gpu_info_labels[uuid], at)
        for (uuid, name), values in columns.items():
            family = family_by_metric[name]
            if (uuid, name) not in label_texts:
                label_texts[uuid, name] = label_text(families.gpu_labels(period.device(uuid, times[0]), period.host))
            prefix, scale = family.sample_name + label_texts[uuid, name], family.scale
            lines = [
                f"{prefix} {value_text(number if scale == 1 else _scaled_number(number, scale))} {at}\n"
                for at, number in zip(timestamps, values, strict=True)
                if number is not None
            ]
            if lines:
                spool.add((family.name, label_texts[uuid, name]), "".join(lines))


def _write_mig_and_process_samples(period: ExportedPeriod, spool: _SeriesSpool) -> None:
    """MIG instances and processes, which are in the samples themselves."""
    last = float("-inf")
    mig_info, processes_info = _InfoSeries(spool, families.MIG_INFO), _InfoSeries(spool, families.PROCESS_INFO)
    for at, snapshot, _ in period.samples():
        if at <= last:  # the clock was set back, which a series must not be
            continue
        last, timestamp = at, timestamp_text(at)
        for device in snapshot.devices:
            for instance in device.mig_instances:
                labels = families.gpu_labels(device, period.host) | {"mig_instance": instance.id}
                mig_info.add(label_text(labels | {"mig_uuid": instance.uuid, "profile": instance.profile}), at)
                series_labels = label_text(labels)
                for spec, family in _MIG_FAMILIES:
                    reading = instance.readings.get(spec.id)
                    number = None if reading is None else families.as_family_value(spec, reading)
                    if number is not None:
                        spool.add_sample(family, series_labels, number, timestamp)
        seen_labels: set[str] = set()
        for process in snapshot.processes:
            device_of_process = snapshot.device(process.device_uuid)
            if device_of_process is None:
                continue
            labels = families.gpu_labels(device_of_process, period.host) | families.process_labels(process)
            series_labels = label_text(labels)
            if series_labels in seen_labels:
                continue
            seen_labels.add(series_labels)
            details = {name: getattr(process, name) for name in ("name", "type", "framework", "container")}
            processes_info.add(label_text(labels | details), at)
            for family, reading_id, scale in families.PROCESS_FAMILIES:
                value = process.number(reading_id)
                if value is not None:
                    spool.add_sample(family, series_labels, _scaled_number(value, scale), timestamp)


def _write_means(period: ExportedPeriod, spool: _SeriesSpool) -> None:
    specs = {spec.id: (spec, families.family_of(spec)) for spec in NUMERIC_METRICS}
    info_series = _InfoSeries(spool, families.GPU_INFO)
    for at, device, metrics in period.means():
        series_labels = label_text(families.gpu_labels(device, period.host))
        info_series.add(_gpu_info_labels(period, device), at)
        for name, summary in metrics.items():
            spec, family = specs[name]
            number = summary.most if spec.counter else summary.mean
            spool.add_sample(family, series_labels, _scaled_number(number, family.scale), timestamp_text(at))


def _scaled_number(number: float, scale: float) -> float:
    """The number without digits that only the factor brings in."""
    return round(number * scale, 9)


def _gpu_info_labels(period: ExportedPeriod, device: Device) -> str:
    """The labels of its :data:`.metric_families.GPU_INFO`."""
    labels = families.gpu_labels(device, period.host) | families.gpu_identity(device, period.last.driver)
    return label_text(labels | {"mig": None})  # its mode may change within the recording


def _finding_samples(period: ExportedPeriod) -> Iterator[bytes]:
    """Samples of findings: 1 as long as one held, then 0. Times of one series must grow, so overlaps are joined."""
    periods_by_labels: dict[str, list[tuple[float, float]]] = {}
    for since, until, finding in period.findings():
        labels: dict[str, object] = {"cause": finding.id, "severity": finding.severity}
        if finding.device_uuid is not None:
            labels |= families.gpu_labels(period.device(finding.device_uuid, since), period.host)
        else:
            labels["host"] = period.host
        since, until = max(since, period.begin), min(until, period.end)
        periods = periods_by_labels.setdefault(label_text(labels), [])
        if periods and since <= periods[-1][1] + 1.0:
            periods[-1] = (periods[-1][0], max(periods[-1][1], until))
        else:
            periods.append((since, until))
    header = families.FINDING.header()
    for series_labels, periods in periods_by_labels.items():
        for since, until in periods:
            lines, at = [], since
            while at < until:
                lines.append(f"{families.FINDING.sample_name}{series_labels} 1 {timestamp_text(at)}\n")
                at += _REPEAT_SECONDS
            lines.append(f"{families.FINDING.sample_name}{series_labels} 1 {timestamp_text(until)}\n")
            if until < period.end:
                lines.append(f"{families.FINDING.sample_name}{series_labels} 0 {timestamp_text(until + 0.5)}\n")
            yield (header + "".join(lines)).encode()
            header = ""
