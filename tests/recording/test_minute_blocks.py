"""Blocks: whatever happens within a minute, every sample comes back as it was."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from gpuwatch.model.findings import Finding
from gpuwatch.model.snapshot import Process, Snapshot
from gpuwatch.recording import compression
from gpuwatch.recording.minute_blocks import DamagedMinute, Minute, pack_minute
from gpuwatch.recording.storable import Storable
from tests.recording.days import day
from tests.ui import machines
from tests.unit.test_frames import life, steps


def found(number: int) -> tuple[Finding, ...]:
    return (Finding(id="unknown", severity="info", certainty="fact", title=f"number {number}"),) * (number % 3)


def same(got: Snapshot, shot: Snapshot) -> None:
    assert got == shot
    for one, other in zip(
        (*got.devices, *got.processes, *got.bystanders), (*shot.devices, *shot.processes, *shot.bystanders), strict=True
    ):
        assert list(one.readings) == list(other.readings)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_any_life_of_a_machine_comes_back(changes: list[tuple[str, int, Any]]) -> None:
    shots = [(shot, found(number // 2)) for number, shot in enumerate(life(changes))]
    minute = Minute(pack_minute(shots))
    assert minute.samples == len(shots)
    assert minute.times == [shot.taken_at.timestamp() for shot, _ in shots]
    for place, (shot, findings) in enumerate(shots):
        kept = minute.kept(place)
        same(kept.snapshot, shot)
        assert kept.findings == findings
        types = [[type(value) for value in one.readings.values()] for one in kept.snapshot.processes]
        assert types == [[type(value) for value in one.readings.values()] for one in shot.processes]
    for kept, (shot, findings) in zip(minute.all(), shots, strict=True):
        same(kept.snapshot, shot)
        assert kept.findings == findings
    first = shots[0][0]
    for device in first.devices:
        for metric in device.readings:
            wanted = [
                there.number(metric) if (there := shot.device(device.uuid)) is not None else None for shot, _ in shots
            ]
            got = minute.numbers(device.uuid, metric)
            assert wanted == (list(got) if got is not None else [None] * len(shots))
    for row in first.processes:
        rows = [
            tuple(one for one in shot.processes if (one.pid, one.create_time) == (row.pid, row.create_time))
            for shot, _ in shots
        ]
        assert list(minute.process(row.pid, row.create_time)) == rows


def test_rows_with_one_name_are_kept_apart() -> None:
    """Two rows of a process without a start time on one device."""
    rows: list[Process] = [
        machines.process(number, pid=7, create_time=None, readings={"sm_percent": number}) for number in (3, 5)
    ]
    shots = [
        (replace(machines.many(1, 0, tick=tick), processes=tuple(rows[:: 1 - 2 * (tick % 2)])), ()) for tick in range(4)
    ]
    assert [kept.snapshot for kept in Minute(pack_minute(shots)).all()] == [shot for shot, _ in shots]


def test_unchanged_parts_are_the_same_objects() -> None:
    first = machines.many(2, 6)
    shots = [(replace(first, taken_at=machines.many(1, 0, tick=tick).taken_at), ()) for tick in range(3)]
    got = [kept.snapshot for kept in Minute(pack_minute(shots)).all()]
    assert all(after.unchanged(before) for before, after in pairwise(got))


@pytest.mark.parametrize("xz", [True, False])
def test_damaged_blocks_are_refused(monkeypatch: pytest.MonkeyPatch, xz: bool) -> None:
    if not xz:
        monkeypatch.setattr(compression, "lzma", None)
    data = pack_minute([(machines.many(2, 6, tick=tick), ()) for tick in range(5)])
    for place in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[place] ^= 0x55
        with pytest.raises(DamagedMinute):
            Minute(bytes(damaged)).kept(4)
    for end in range(0, len(data), 50):
        with pytest.raises(DamagedMinute):
            Minute(data[:end])


def test_a_minute_takes_half_a_byte_a_value() -> None:
    storable = Storable()
    shots = [storable.of(shot) for shot in day(8, 50, 60)]
    values = [[value for row in (*shot.devices, *shot.processes) for value in row.readings.values()] for shot in shots]
    stored = sum(map(len, values))
    changed = sum(a != b for before, after in pairwise(values) for a, b in zip(before, after, strict=True))
    size = len(pack_minute([(shot, ()) for shot in shots]))
    assert size / stored < 0.5
    assert size / changed < 2.0


def test_where_python_has_no_xz(monkeypatch: pytest.MonkeyPatch) -> None:
    shots = [(machines.many(2, 6, tick=tick), ()) for tick in range(5)]
    with_xz = pack_minute(shots)
    monkeypatch.setattr(compression, "lzma", None)
    assert [kept.snapshot for kept in Minute(pack_minute(shots)).all()] == [shot for shot, _ in shots]
    with pytest.raises(DamagedMinute, match="this Python was built without"):
        Minute(with_xz)
    monkeypatch.undo()
    assert Minute(with_xz).samples == 5
