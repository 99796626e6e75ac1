"""Blocks: whatever happens within a minute, every sample comes back as it was."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Process, Snapshot
from gpuwatch.machine.history.last_hour import Chunk, LastHour
from gpuwatch.machine.history.sample_frames import DamagedData, FrameDecoder, FrameEncoder, StoredSample, split_frames
from gpuwatch.machine.recording import database_cells
from gpuwatch.machine.recording.database_cells import compress, decompress, pack_times, unpack_times
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.storable_snapshots import StorableSnapshots
from tests.recording.days import day
from tests.recording.recordings import Growing
from tests.ui import machines
from tests.unit.test_frames import life, steps


def found(number: int) -> tuple[Finding, ...]:
    return (Finding(id="unknown", severity="info", certainty="fact", title=f"number {number}"),) * (number % 3)


Shots = list[tuple[Snapshot, tuple[Finding, ...]]]


def pack(shots: Shots) -> bytes:
    writer = FrameEncoder()
    return compress(b"".join([writer.frames(*shot) for shot in shots]))


def read(block: bytes) -> list[StoredSample]:
    return list(map(FrameDecoder.sample, FrameDecoder().read(decompress(block))))


def same(got: Snapshot, shot: Snapshot) -> None:
    assert got == shot
    for one, other in zip(
        (*got.devices, *got.processes, *got.bystanders), (*shot.devices, *shot.processes, *shot.bystanders), strict=True
    ):
        assert list(one.readings) == list(other.readings)


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(steps)
def test_any_life_of_a_machine_comes_back(changes: list[tuple[str, int, Any]]) -> None:
    shots = [(shot, found(number // 2)) for number, shot in enumerate(life(changes))]
    chunk = Chunk()
    for shot in shots:
        chunk.add(*shot)
    for got in (
        read(pack(shots)),
        list(map(FrameDecoder.sample, chunk.read())),
        (chunk.close(), list(map(FrameDecoder.sample, chunk.read())))[1],
    ):
        assert [kept.findings for kept in got] == [findings for _, findings in shots]
        for kept, (shot, _) in zip(got, shots, strict=True):
            same(kept.snapshot, shot)
            assert kept.at == shot.taken_at.timestamp()
    assert unpack_times(pack_times(chunk.times)) == chunk.times
    timeline = LastHour()
    for shot, findings in shots:
        timeline.add(shot, findings)
    first = shots[0][0]
    names = frozenset(name for device in first.devices for name in device.readings)
    for device in first.devices:
        for metric in device.readings:
            wanted = [
                there.number(metric) if (there := shot.device(device.uuid)) is not None else None for shot, _ in shots
            ]
            found_ = [
                value
                for times, columns in timeline.numbers(0, 1e12, names)
                for value in columns.get((device.uuid, metric), [None] * len(times))
            ]
            assert found_ == wanted
    for row in first.processes:
        rows = [
            tuple(one for one in shot.processes if (one.pid, one.create_time) == (row.pid, row.create_time))
            for shot, _ in shots
        ]
        assert [there for _, there in timeline.process((row.pid, row.create_time), 0, 1e12)] == rows


def test_rows_with_one_name_are_kept_apart() -> None:
    """Two rows of a process without a start time on one device."""
    rows: list[Process] = [
        machines.process(number, pid=7, create_time=None, readings={"sm_percent": number}) for number in (3, 5)
    ]
    shots = [
        (replace(machines.many(1, 0, tick=tick), processes=tuple(rows[:: 1 - 2 * (tick % 2)])), ()) for tick in range(4)
    ]
    assert [kept.snapshot for kept in read(pack(shots))] == [shot for shot, _ in shots]


def test_unchanged_parts_are_the_same_objects(tmp_path: Path) -> None:
    """On the wire, in memory and in a recording, also from one block to the next and to the samples in none."""
    first = machines.many(2, 6)
    shots = [(replace(first, taken_at=machines.many(1, 0, tick=tick).taken_at), ()) for tick in range(25)]
    timeline, growing = LastHour(), Growing(tmp_path / "a.gpuwatch", seal_seconds=10.0)
    for shot, _ in shots:
        timeline.add(shot, ())
        growing.writer.add(shot)
    encoder, receiver = FrameEncoder(), FrameDecoder()
    frames = b"".join(encoder.frames(shot) for shot, _ in shots)
    with Recording(growing.path) as recording:
        for store in (
            [receiver.receive(kind, body) for kind, body in split_frames(frames)],
            [decoder.snapshot() for _, decoder in timeline.decoders(0, 1e12)],
            [kept.snapshot for kept in recording.snapshots()],
        ):
            assert len(store) == len(shots)
            assert all(after.unchanged(before) for before, after in pairwise(store))
    growing.end()
    got = [kept.snapshot for kept in read(pack(shots))]
    assert all(after.unchanged(before) for before, after in pairwise(got))


@pytest.mark.parametrize("xz", [True, False])
def test_damaged_blocks_are_refused(monkeypatch: pytest.MonkeyPatch, xz: bool) -> None:
    if not xz:
        monkeypatch.setattr(database_cells, "lzma", None)
    data = pack([(machines.many(2, 6, tick=tick), ()) for tick in range(5)])
    for place in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[place] ^= 0x55
        with pytest.raises(DamagedData):
            read(bytes(damaged))
    for end in range(0, len(data), 50):
        with pytest.raises(DamagedData):
            read(data[:end])
    with pytest.raises(DamagedData):
        read(compress(b"\0\0\0\1Dx"))


def test_a_minute_takes_a_byte_a_value() -> None:
    storable = StorableSnapshots()
    shots = [storable.of(shot) for shot in day(8, 50, 60)]
    values = [[value for row in (*shot.devices, *shot.processes) for value in row.readings.values()] for shot in shots]
    stored = sum(map(len, values))
    changed = sum(a != b for before, after in pairwise(values) for a, b in zip(before, after, strict=True))
    size = len(pack([(shot, ()) for shot in shots]))
    assert size / stored < 0.8
    assert size / changed < 3.2


def test_where_python_has_no_xz(monkeypatch: pytest.MonkeyPatch) -> None:
    shots: Shots = [(machines.many(2, 6, tick=tick), ()) for tick in range(5)]
    with_xz = pack(shots)
    monkeypatch.setattr(database_cells, "lzma", None)
    assert [kept.snapshot for kept in read(pack(shots))] == [shot for shot, _ in shots]
    with pytest.raises(DamagedData, match="this Python was built without"):
        read(with_xz)
    monkeypatch.undo()
    assert len(read(with_xz)) == 5
