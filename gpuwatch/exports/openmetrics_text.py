"""OpenMetrics text with timestamps, as ``promtool tsdb create-blocks-from openmetrics`` reads it.

The format wants all samples of a metric family together, and the file has them by time: they are collected in a
temporary file first. Names (performance state, versions) have no place in it beside ``gpuwatch_gpu_info``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO

from gpuwatch.exports.stretch import NUMBERS, Stretch
from gpuwatch.formatting.openmetrics import FINDING, INFO, device_family, labels, moment, value
from gpuwatch.model.snapshot import Device
from gpuwatch.recording.tiers import Key

_BUFFERED = 8 << 20
"""Characters in memory."""
_PIECE = 1 << 20
_EVERY = 60.0
"""Seconds between samples of a finding: Prometheus forgets a series after five minutes."""

_Series = tuple[str, str]
"""Id of the metric, UUID of the device."""


def write(stretch: Stretch) -> Iterator[bytes]:
    """The text."""
    with _Spool() as spool:
        if stretch.step:
            _means(stretch, spool)
        else:
            _samples(stretch, spool)
        yield from _info(stretch)
        for spec in NUMBERS:
            header = device_family(spec).header().encode()
            for piece in spool.pieces(spec.id):
                yield header + piece
                header = b""
        yield from _findings(stretch)
        yield b"# EOF\n"


class _Spool:
    """Text by series, in a temporary file."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by __exit__
        self._open: dict[_Series, list[str]] = {}
        self._size = 0
        self._places: dict[_Series, list[tuple[int, int]]] = {}

    def __enter__(self) -> _Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, series: _Series, text: str) -> None:
        """Adds text to the end of a series."""
        self._open.setdefault(series, []).append(text)
        self._size += len(text)
        if self._size > _BUFFERED:
            self._flush()

    def _flush(self) -> None:
        for series, texts in self._open.items():
            data = "".join(texts).encode()
            self._places.setdefault(series, []).append((self._file.tell(), len(data)))
            self._file.write(data)
        self._open.clear()
        self._size = 0

    def pieces(self, metric: str) -> Iterator[bytes]:
        """The text of all series of a metric."""
        self._file.seek(0, 2)
        self._flush()
        for series in sorted(one for one in self._places if one[0] == metric):
            for place, size in self._places[series]:
                self._file.seek(place)
                while size:
                    piece = self._file.read(min(size, _PIECE))
                    size -= len(piece)
                    yield piece


def _samples(stretch: Stretch, spool: _Spool) -> None:
    known: dict[Key, str] = {}
    families = {spec.id: device_family(spec) for spec in NUMBERS}
    for times, columns in stretch.numbers():
        moments = [moment(at) for at in times]
        for (uuid, name), values in columns.items():
            if (uuid, name) not in known:
                device = stretch.device(uuid, times[0])
                known[uuid, name] = families[name].sample + labels(_labels(stretch, device))
            head, scale = known[uuid, name], families[name].scale
            lines = [
                f"{head} {value(number if scale == 1 else _scaled(number, scale))} {at}\n"
                for at, number in zip(moments, values, strict=True)
                if number is not None
            ]
            if lines:
                spool.add((name, uuid), "".join(lines))


def _means(stretch: Stretch, spool: _Spool) -> None:
    specs = {spec.id: (spec, device_family(spec)) for spec in NUMBERS}
    for at, device, metrics in stretch.means():
        own = labels(_labels(stretch, device))
        for name, summary in metrics.items():
            spec, family = specs[name]
            number = summary.most if spec.counter else summary.mean
            text = f"{family.sample}{own} {value(_scaled(number, family.scale))} {moment(at)}\n"
            spool.add((name, device.uuid), text)


def _scaled(number: float, scale: float) -> float:
    """The number without digits that only the factor brings in."""
    return round(number * scale, 9)


def _labels(stretch: Stretch, device: Device) -> dict[str, object]:
    gpu = device.index if device.index >= 0 else None
    return {"uuid": device.uuid, "gpu": gpu, "host": stretch.host}


def _info(stretch: Stretch) -> Iterator[bytes]:
    header = INFO.header()
    for device in stretch.last.devices:
        about: dict[str, object] = {
            "name": device.name,
            "pci_bus_id": device.pci_bus_id,
            "compute_capability": device.compute_capability,
            "driver": stretch.last.driver.version if stretch.last.driver is not None else None,
            "simulated": "true" if device.simulated else None,
        }
        own = labels(_labels(stretch, device) | about)
        yield f"{header}{INFO.sample}{own} 1 {moment(stretch.end)}\n".encode()
        header = ""


def _findings(stretch: Stretch) -> Iterator[bytes]:
    """1 as long as a finding held, then 0. Times of one series must grow: what overlaps is one."""
    held: dict[str, list[tuple[float, float]]] = {}
    for since, until, finding in stretch.findings():
        about: dict[str, object] = {"cause": finding.id, "severity": finding.severity}
        if finding.device_uuid is not None:
            about |= _labels(stretch, stretch.device(finding.device_uuid, since))
        else:
            about["host"] = stretch.host
        since, until = max(since, stretch.begin), min(until, stretch.end)
        times = held.setdefault(labels(about), [])
        if times and since <= times[-1][1] + 1.0:
            times[-1] = (times[-1][0], max(times[-1][1], until))
        else:
            times.append((since, until))
    header = FINDING.header()
    for own, times in held.items():
        for since, until in times:
            lines, at = [], since
            while at < until:
                lines.append(f"{FINDING.sample}{own} 1 {moment(at)}\n")
                at += _EVERY
            lines.append(f"{FINDING.sample}{own} 1 {moment(until)}\n")
            if until < stretch.end:
                lines.append(f"{FINDING.sample}{own} 0 {moment(until + 0.5)}\n")
            yield (header + "".join(lines)).encode()
            header = ""
