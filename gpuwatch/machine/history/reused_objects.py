"""Consecutive samples as frames, in memory and in recordings. The first is a key frame: a chunk is read by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from msgspec.structs import replace

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.machine.history.sample_frames import MOVING, FrameDecoder, FrameEncoder, packed_frame

_R = TypeVar("_R", Device, Process)
_T = TypeVar("_T")


class Chunk:
    """Consecutive samples in memory."""

    __slots__ = ("_encoder", "_frames", "size", "times")

    PER_SAMPLE = 100
    """Bytes of Python's overhead for one sample."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.size = 0
        """Bytes."""
        self._frames: list[bytes] = []
        self._encoder = FrameEncoder()

    def add(self, snapshot: Snapshot, findings: tuple[Finding, ...]) -> None:
        frames = self._encoder.frames(snapshot, findings)
        self._frames.append(frames)
        self.size += len(frames) + self.PER_SAMPLE
        self.times.append(snapshot.taken_at.timestamp())

    def close(self) -> None:
        """Compresses the chunk: it is complete."""
        self._frames = [packed_frame(b"".join(self._frames))]
        self._encoder = FrameEncoder()
        self.size = len(self._frames[0]) + self.PER_SAMPLE * len(self.times)

    def read(self) -> Iterator[FrameDecoder]:
        """A decoder after each sample, to be read before the next one is asked for."""
        return FrameDecoder().read(b"".join(self._frames))


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


_LASTING = tuple(name for name in Snapshot.__struct_fields__ if name not in MOVING)


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
