"""Means over minutes and hours, so that a year fits one screen: minimum, mean, maximum and count by device and metric.

A block holds the minutes of an hour, or the hours of a day. Minimum and maximum are exact; means have the seven digits
of a 32-bit float.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from gpuwatch.core.model.metrics import METRICS, Unit
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.history.abstract_sample_store import SeriesKey
from gpuwatch.machine.history.sample_frames import DamagedData, decoded, decompress_zlib

MINUTE, HOUR = 60, 3600
BLOCK_SECONDS = {MINUTE: 3600, HOUR: 86_400}
"""Seconds of a block, by seconds of its points."""
AGE_FACTORS = {MINUTE: 3, HOUR: 12}
"""How many times longer than samples means are kept, by seconds of their points."""
_NUMERIC_METRICS = frozenset(spec.id for spec in METRICS if spec.unit is not Unit.NAME)


class Summary(NamedTuple):
    """A metric of a device over some time."""

    least: float
    """Minimum."""
    mean: float
    most: float
    """Maximum."""
    samples: int
    """Samples that had a number."""

    def merged_with(self, other: Summary) -> Summary:
        samples = self.samples + other.samples
        mean = (self.mean * self.samples + other.mean * other.samples) / samples
        return Summary(min(self.least, other.least), mean, max(self.most, other.most), samples)


_NO_SAMPLES = Summary(0.0, 0.0, 0.0, 0)

Points = dict[int, dict[SeriesKey, Summary]]
"""By begin in seconds since the epoch."""


class _Block(msgspec.Struct, array_like=True):
    begins: list[int]
    metrics: dict[str, dict[str, list[list[float]]]]
    """By UUID and metric: minimum, mean, maximum and count in each point; count 0 where there was none."""


_decode_block = msgspec.msgpack.Decoder(_Block).decode


def interval_begin(at: float, seconds: int) -> int:
    """When the point or block of ``seconds`` that contains ``at`` begins."""
    return int(at // seconds * seconds)


def summarize(samples: Iterable[Snapshot], seconds: int) -> Points:
    """Minimum, mean, maximum and count of these samples per interval of ``seconds``."""
    values: dict[int, dict[SeriesKey, list[float]]] = {}
    for snapshot in samples:
        by_metric = values.setdefault(interval_begin(snapshot.taken_at.timestamp(), seconds), {})
        for device in snapshot.devices:
            uuid = device.uuid
            for name, value in device.readings.items():
                if name in _NUMERIC_METRICS and type(value) is not str:
                    by_metric.setdefault((uuid, name), []).append(value)  # type: ignore[arg-type]
    return {
        begin: {
            key: Summary(float(min(numbers)), sum(numbers) / len(numbers), float(max(numbers)), len(numbers))
            for key, numbers in found.items()
        }
        for begin, found in values.items()
    }


def merge_points(into: Points, more: Points) -> None:
    """Adds ``more`` to the points of ``into``."""
    for begin, found in more.items():
        by_metric = into.setdefault(begin, {})
        for key, summary in found.items():
            known = by_metric.get(key)
            by_metric[key] = summary if known is None else known.merged_with(summary)


def pack_points(points: Points) -> bytes:
    """The block of these points, at least one."""
    begins = sorted(points)
    keys = sorted({key for found in points.values() for key in found})
    metrics: dict[str, dict[str, list[list[float]]]] = {}
    for key in keys:
        least, mean, most, samples = zip(*(points[begin].get(key, _NO_SAMPLES) for begin in begins), strict=True)
        columns = [
            list(map(_int_if_whole, least)),
            list(map(_shortened_float, mean)),
            list(map(_int_if_whole, most)),
            list(samples),
        ]
        metrics.setdefault(key[0], {})[key[1]] = columns
    return zlib.compress(msgspec.msgpack.encode(_Block(begins, metrics)), 6)


def unpack_points(data: bytes, metrics: frozenset[str] | None = None) -> Points:
    """The points of a block, of these metrics or all; :class:`~gpuwatch.machine.history.sample_frames.DamagedData`."""
    block = decoded(_decode_block, decompress_zlib(data))
    points: Points = {begin: {} for begin in block.begins}
    try:
        for uuid, found in block.metrics.items():
            for name, columns in found.items():
                if metrics is not None and name not in metrics:
                    continue
                for begin, least, mean, most, samples in zip(block.begins, *columns, strict=True):
                    if samples:
                        points[begin][uuid, name] = Summary(least, mean, most, int(samples))
    except (ValueError, TypeError, OverflowError) as error:
        raise DamagedData(f"means: {error}") from error
    return points


def _int_if_whole(value: float) -> float:
    """The same number, in fewer bytes where it is whole."""
    return int(value) if value.is_integer() else value


def _shortened_float(value: float) -> float:
    """The number as a 32-bit float, shortened to the fewest digits of those."""
    try:
        return float(f"{struct.unpack('f', struct.pack('f', value))[0]:.7g}")
    except OverflowError:
        return value
