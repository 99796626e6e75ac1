"""The last hour of whole snapshots in a few megabytes, so that the past can be looked at unasked.

What a row says apart from its readings hardly ever changes and is kept once. Readings become two
arrays of numbers, of which only the difference to the sample before is kept, compressed. The older,
the fewer: see :data:`LEVELS`. Numbers with a fraction keep seven digits, which is more than is shown.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec

from gpuwatch.history.chunks import CHUNK, Chunk, Sample
from gpuwatch.history.packing import Identity as Identity
from gpuwatch.history.packing import Layout, Numbers, Packer, Shape, bytes_of, encode, process_of
from gpuwatch.history.ring import History
from gpuwatch.model.findings import Finding
from gpuwatch.model.snapshot import Host, Process, Snapshot

LEVELS = ((600.0, 0.0), (1800.0, 5.0), (3600.0, 15.0))
"""Up to which age in seconds samples are kept how far apart: all of ten minutes, then one in 5 s, one in 15 s.

Samples leave a level sixty at a time, so that some are a little older."""
MOST_BYTES = 12 * 2**20
"""Above this the oldest go early: only many processes that come and go every second need it."""
_MOST_AT_ONCE = 600
"""Samples of the first level, however short the interval."""
_of_findings = msgspec.msgpack.Decoder(tuple[Finding, ...]).decode


class Kept(NamedTuple):
    """The machine at one moment."""

    at: float
    """Seconds since the epoch."""
    snapshot: Snapshot
    findings: tuple[Finding, ...]


class _Own(msgspec.Struct, array_like=True):
    """What is different in every sample."""

    at: float
    took: float
    host: Host


_of_own = msgspec.msgpack.Decoder(_Own).decode


class Timeline:
    """Snapshots of the last hour. One thread writes and reads it."""

    def __init__(self) -> None:
        self._levels: tuple[deque[Chunk], ...] = tuple(deque() for _ in LEVELS)
        self._packer = Packer()
        self._findings = encode(())

    # Keeping

    def add(
        self,
        snapshot: Snapshot,
        findings: tuple[Finding, ...] | None = None,
        *,
        same: bool = False,
        calm: bool = False,
    ) -> None:
        """One more sample, later than all before; ``findings`` None: those of the sample before still hold.

        ``same``: but for its moment, run times and the host it is the sample before; ``calm``: but for these
        and its devices.
        """
        at = snapshot.taken_at.timestamp()
        if findings is not None:
            encoded = bytes_of(findings)
            if encoded != self._findings:
                self._findings = encoded
        packer = self._packer
        if not same or packer.layout is None:
            packer.take(snapshot, at, calm=calm)
        assert packer.layout is not None
        own = encode(_Own(at, snapshot.took_seconds, snapshot.host))
        self._put(0, at, own, packer.layout, self._findings, packer.raw)
        self._thin(at)

    def _put(self, level: int, at: float, own: bytes, layout: Layout, findings: bytes, raw: bytes) -> None:
        chunks = self._levels[level]
        if not chunks or len(chunks[-1].samples) >= CHUNK:
            if chunks:
                chunks[-1].close()
            chunks.append(Chunk())
        chunks[-1].add(at, own, layout, findings, raw)

    def _thin(self, now: float) -> None:
        for level, (span, _) in enumerate(LEVELS):
            chunks = self._levels[level]
            while chunks and (
                now - chunks[0].samples[-1].at > span
                or (level == 0 and len(chunks) > 1 and (len(chunks) - 1) * CHUNK >= _MOST_AT_ONCE)
            ):
                old = chunks.popleft()
                if level + 1 < len(LEVELS):
                    self._pass_on(old, level + 1)
        while self.size_bytes > MOST_BYTES and sum(map(len, self._levels)) > 1:
            next(chunks for chunks in reversed(self._levels) if chunks).popleft()

    def _pass_on(self, old: Chunk, level: int) -> None:
        apart = LEVELS[level][1]
        there = self._levels[level]
        last = there[-1].samples[-1].at if there else -1.0
        for sample, raw in old.read():
            if sample.at // apart > last // apart:
                self._put(level, sample.at, sample.own, sample.layout, sample.findings, raw)
                last = sample.at

    # What there is

    @property
    def size_bytes(self) -> int:
        """What the samples take, shared rows apart."""
        return sum(chunk.size for chunks in self._levels for chunk in chunks)

    @property
    def times(self) -> list[float]:
        """Seconds since the epoch of the samples, oldest first."""
        return [sample.at for chunk in self._chunks() for sample in chunk.samples]

    def _chunks(self) -> Iterator[Chunk]:
        for chunks in reversed(self._levels):
            yield from chunks

    # Looking back

    def at(self, moment: float) -> Kept | None:
        """The last sample not later than ``moment``, the first one where all are later; None without any."""
        chosen: Chunk | None = None
        for chunk in self._chunks():
            if chosen is None or chunk.samples[0].at <= moment:
                chosen = chunk
        if chosen is None:
            return None
        place = max(bisect_right([sample.at for sample in chosen.samples], moment) - 1, 0)
        for number, (sample, raw) in enumerate(chosen.read()):
            if number == place:
                return self._whole(sample, raw)
        raise AssertionError("unreachable")

    def _whole(self, sample: Sample, raw: bytes) -> Kept:
        own = _of_own(sample.own)
        snapshot = self._packer.whole(sample.layout, raw, sample.at, own.took, own.host)
        return Kept(sample.at, snapshot, _of_findings(sample.findings))

    def _between(self, begin: float, end: float) -> Iterator[tuple[Sample, bytes]]:
        chunks = list(self._chunks())
        for chunk, following in pairwise([*chunks, None]):
            assert chunk is not None
            if chunk.samples[0].at > end or (following is not None and following.samples[0].at <= begin):
                continue
            for sample, raw in chunk.read():
                if begin <= sample.at <= end:
                    yield sample, raw

    def history(self, end: float, seconds: float, metrics: frozenset[str]) -> History:
        """What the ring would have held at ``end``, of these metrics only."""
        history = History()
        layout: Layout | None = None
        places: list[tuple[tuple[str, str], str, int]] = []
        for sample, raw in self._between(end - seconds, end):
            if sample.layout is not layout:
                layout = sample.layout
                places = layout.numbers(metrics)
            numbers = Numbers(sample.layout, raw)
            arrays: dict[str, array[int] | array[float]] = {
                "i": numbers.wholes,
                "d": numbers.doubles,
                "f": numbers.singles,
            }
            history.put(sample.at, {key: float(arrays[code][place]) for key, code, place in places})
        return history

    def process(self, who: Identity, begin: float, end: float) -> Iterator[tuple[float, tuple[Process, ...]]]:
        """The rows of one process at each sample from ``begin`` to ``end``; none where it was not there."""
        layout: Layout | None = None
        places: list[tuple[int, Shape]] = []
        for sample, raw in self._between(begin, end):
            if sample.layout is not layout:
                layout = sample.layout
                listed = layout.shapes[: layout.devices + layout.processes]
                places = [(place, shape) for place, shape in enumerate(listed) if shape.who == who]
            numbers = Numbers(sample.layout, raw) if places else None
            rows = []
            for place, shape in places:
                assert numbers is not None
                readings = numbers.row(place, self._packer.words, shape.since(sample.at))
                rows.append(process_of(shape.plain, readings))
            yield sample.at, tuple(rows)
