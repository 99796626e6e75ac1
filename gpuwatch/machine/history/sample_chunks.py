"""Consecutive samples as frames, in memory and in recordings. The first is a key frame: a chunk is read by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.machine.history.sample_frames import (
    FINDINGS,
    DamagedData,
    FrameDecoder,
    FrameEncoder,
    decoded,
    encoded,
    framed,
    packed_frame,
    split_frames,
)

_R = TypeVar("_R", Device, Process)
_T = TypeVar("_T")
_of_findings = msgspec.msgpack.Decoder(tuple[Finding, ...]).decode


class KeptSample(NamedTuple):
    """A stored sample: snapshot and findings at one moment."""

    at: float
    """Seconds since the epoch."""
    snapshot: Snapshot
    findings: tuple[Finding, ...]

    def judged(self) -> Snapshot:
        return replace(self.snapshot, findings=self.findings)


Position = tuple[FrameDecoder, tuple[Finding, ...]]
"""A decoder that has taken the frames up to a sample, and the findings that hold in it."""


class ChunkReader:
    """Decodes the frames of a chunk as they come."""

    def __init__(self) -> None:
        self._decoder = FrameDecoder()
        self._found: tuple[Finding, ...] = ()

    def take(self, frames: bytes) -> Iterator[Position]:
        """The samples of the next frames; :class:`DamagedData`. Read a position before the next one is asked for."""
        for kind, body in split_frames(frames):
            if kind == FINDINGS:
                self._found = decoded(_of_findings, body)
            else:
                self._decoder.take(kind, body)
                yield self._decoder, self._found


class ChunkWriter:
    """Encodes the samples of a chunk."""

    def __init__(self) -> None:
        self._encoder = FrameEncoder()
        self._findings: tuple[Finding, ...] = ()

    def frames(self, snapshot: Snapshot, findings: tuple[Finding, ...]) -> bytes:
        before, self._findings = self._findings, findings
        frame = self._encoder.frame(snapshot)
        if findings is before or findings == before:
            return frame
        return framed(FINDINGS, encoded(findings)) + frame


class Chunk:
    """Consecutive samples in memory."""

    __slots__ = ("_frames", "_writer", "size", "times")

    PER_SAMPLE = 100
    """Bytes of Python's overhead for one sample."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.size = 0
        """Bytes."""
        self._frames: list[bytes] = []
        self._writer = ChunkWriter()

    def add(self, snapshot: Snapshot, findings: tuple[Finding, ...]) -> None:
        frames = self._writer.frames(snapshot, findings)
        self._frames.append(frames)
        self.size += len(frames) + self.PER_SAMPLE
        self.times.append(snapshot.taken_at.timestamp())

    def close(self) -> None:
        """Compresses the chunk: it is complete."""
        self._frames = [packed_frame(b"".join(self._frames))]
        self._writer = ChunkWriter()
        self.size = len(self._frames[0]) + self.PER_SAMPLE * len(self.times)

    def read(self) -> Iterator[Position]:
        return ChunkReader().take(b"".join(self._frames))


class Samples:
    """Consecutive samples that are decoded already."""

    __slots__ = ("kept",)

    def __init__(self) -> None:
        self.kept: list[KeptSample] = []

    @property
    def times(self) -> list[float]:
        return [kept.at for kept in self.kept]

    def read(self) -> Iterator[Position]:
        decoder = FrameDecoder()
        for _, snapshot, findings in self.kept:
            decoder.begin(snapshot)
            yield decoder, findings


def all_samples(positions: Iterable[Position]) -> Iterator[KeptSample]:
    """The samples at these positions. Unchanged parts are the same objects in the next one."""
    for decoder, findings in positions:
        yield KeptSample(decoder.at, decoder.snapshot(), findings)


def sample_at(positions: Iterator[Position], place: int) -> KeptSample:
    """The sample at one place; :class:`DamagedData` if there is none."""
    for kept in all_samples(islice(positions, place, place + 1)):
        return kept
    raise DamagedData(f"no sample {place}")


class MappedRows(Generic[_T]):
    """Rows made of rows, of each object once: unchanged rows, and tuples of them, stay the same objects."""

    def __init__(self, make: Callable[[_T], _T]) -> None:
        self._make = make
        self._last: tuple[tuple[_T, ...], tuple[_T, ...]] = ((), ())

    def of(self, given: tuple[_T, ...]) -> tuple[_T, ...]:
        """The rows for these, in the order of the samples."""
        if given is not self._last[0]:
            known = dict(zip(map(id, self._last[0]), self._last[1], strict=True))
            self._last = (given, tuple([known.get(id(row)) or self._make(row) for row in given]))
        return self._last[1]


_MOVING = ("taken_at", "took_seconds", "host", "devices", "processes", "bystanders")
_LASTING = tuple(name for name in Snapshot.__struct_fields__ if name not in _MOVING)


def with_reused_objects(now: Snapshot, before: Snapshot) -> Snapshot:
    """The snapshot with the objects of the previous one where they are equal, as feeds give them."""
    if now.devices is before.devices and now.processes is before.processes:
        return now
    lasting = {name: getattr(before, name) for name in _LASTING if getattr(now, name) == getattr(before, name)}
    return replace(
        now,
        devices=_reuse_equal(now.devices, before.devices),
        processes=_reuse_equal(now.processes, before.processes),
        bystanders=_reuse_equal(now.bystanders, before.bystanders),
        **lasting,
    )


def _reuse_equal(now: tuple[_R, ...], before: tuple[_R, ...]) -> tuple[_R, ...]:
    """``now`` with the objects of ``before`` where they are equal; ``before`` itself if all are."""
    if len(now) != len(before):
        return now
    rows = [
        old if row is old or (row == old and list(row.readings) == list(old.readings)) else row
        for row, old in zip(now, before, strict=True)
    ]
    return before if all(row is old for row, old in zip(rows, before, strict=True)) else tuple(rows)
