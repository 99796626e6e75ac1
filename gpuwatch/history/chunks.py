"""Samples one after another, each as what differs from the one before, compressed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import lru_cache

from gpuwatch.history.packing import Layout

CHUNK = 60
"""Samples of one chunk: they come and go together."""
_PER_SAMPLE = 400
"""Bytes that Python itself takes for one sample."""


class Sample:
    """One snapshot, packed."""

    __slots__ = ("at", "findings", "layout", "own", "packed")

    def __init__(self, at: float, own: bytes, layout: Layout, findings: bytes, packed: bytes) -> None:
        self.at = at
        self.own = own
        self.layout = layout
        self.findings = findings
        self.packed = packed


def _spread(raw: bytes, eights: int) -> bytes:
    """Bytes of the same weight beside each other: those that do not change then make long runs."""
    longs, shorts = raw[:eights], raw[eights:]
    return b"".join([*(longs[n::8] for n in range(8)), *(shorts[n::4] for n in range(4))])


def _gathered(spread: bytes, eights: int) -> bytes:
    raw = bytearray(len(spread))
    many, few = eights // 8, (len(spread) - eights) // 4
    for n in range(8):
        raw[n:eights:8] = spread[n * many : (n + 1) * many]
    for n in range(4):
        begin = eights + n * few
        raw[eights + n :: 4] = spread[begin : begin + few]
    return bytes(raw)


def _difference(a: bytes, b: bytes) -> bytes:
    return (int.from_bytes(a, "little") ^ int.from_bytes(b, "little")).to_bytes(len(a), "little")


@lru_cache(maxsize=8)
def _no_difference(size: int) -> bytes:
    return zlib.compress(bytes(size), 1)


class Chunk:
    """Some samples one after another. Each is packed as what differs from the one before, the first whole."""

    __slots__ = ("_last", "samples", "size")

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.size = 0
        self._last = b""

    def add(self, at: float, own: bytes, layout: Layout, findings: bytes, raw: bytes) -> None:
        """``raw`` are the numbers of the sample, in the order of its layout."""
        before = self.samples[-1].layout if self.samples else None
        if before is layout and raw == self._last:
            packed = _no_difference(len(raw))
        else:
            change = _difference(raw, self._last) if before is layout else raw
            wholes, _, doubles = layout.starts[-1]
            packed = zlib.compress(_spread(change, 8 * (wholes + doubles)), 1)
        self.samples.append(Sample(at, own, layout, findings, packed))
        self.size += len(packed) + len(own) + _PER_SAMPLE
        self._last = raw

    def close(self) -> None:
        """No more samples come."""
        self._last = b""

    def read(self) -> Iterator[tuple[Sample, bytes]]:
        """Every sample with its numbers, oldest first."""
        before: Sample | None = None
        raw = b""
        for sample in self.samples:
            wholes, _, doubles = sample.layout.starts[-1]
            change = _gathered(zlib.decompress(sample.packed), 8 * (wholes + doubles))
            raw = _difference(change, raw) if before is not None and before.layout is sample.layout else change
            before = sample
            yield sample, raw
