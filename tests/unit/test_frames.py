"""Snapshots as frames: whatever happens between two, the reader has the same ones, also of a file that was cut off."""

from __future__ import annotations

import datetime
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.core.model.snapshot import MigInstance, Process, Snapshot
from gpuwatch.machine.history.sample_frames import (
    DELTA,
    KEY,
    PACKED,
    DamagedData,
    FrameDecoder,
    FrameEncoder,
    framed,
    packed_frame,
    split_frames,
)
from tests.ui import machines

PARTS = tuple(
    MigInstance(
        id=f"{n}/0",
        index=n,
        uuid=f"MIG-{n}",
        gpu_instance=n,
        compute_instance=0,
        profile="1g.10gb",
        readings={"memory.used_bytes": n * 2**30, "memory.total_bytes": 10 * 2**30},
    )
    for n in (1, 4)
)

STEPS = (
    *("cpu", "memory", "state", "workers", "command", "missing", "goes", "comes", "order", "bystander"),
    *("heat", "field", "part", "parts", "lost", "gone", "host", "findings", "driver", "nothing"),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(STEPS),
        st.integers(0, 5),
        st.one_of(st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text(max_size=5)),
    ),
    max_size=14,
)


def changed(snapshot: Snapshot, what: str, number: int, value: Any) -> Snapshot:
    """One step of a machine's life."""
    rows: list[Process] = list(snapshot.processes)
    devices = list(snapshot.devices)
    others: dict[str, Any] = {}
    row = rows[number % len(rows)] if rows else None
    first = devices[0] if devices else None

    def put(**fields: Any) -> None:
        if row is not None:
            rows[number % len(rows)] = replace(row, **fields)

    match what:
        case "cpu" if row is not None:
            put(readings={**row.readings, "cpu_percent": value})
        case "memory" if row is not None:
            put(readings={**row.readings, "gpu_memory_bytes": value, "cpu_percent": number})
        case "state":
            put(state=(None, "D", "Z")[number % 3])
        case "workers":
            put(workers_cpu_percent=None if number == 0 else float(number))
        case "command":
            put(command=str(value), state="D", workers_cpu_percent=1.0)
        case "missing" if row is not None:
            put(readings={}, missing=dict.fromkeys(row.readings, machines.DENIED))
        case "goes":
            rows = rows[number + 1 :]
        case "comes":
            rows.insert(number, machines.process(90 + number))
        case "order":
            rows.reverse()
        case "heat" if first is not None:
            devices[0] = replace(first, readings={**first.readings, "temperature.gpu_celsius": value})
        case "field" if first is not None:
            devices[0] = replace(first, readings=dict(reversed(first.readings.items())), state_detail=str(number))
        case "part" if first is not None and first.mig_instances:
            parts = list(first.mig_instances)
            parts[1] = replace(parts[1], readings={**parts[1].readings, "memory.used_bytes": value})
            devices[0] = replace(first, mig_instances=tuple(parts))
        case "parts" if first is not None:
            devices[0] = replace(first, mig_instances=() if first.mig_instances else PARTS)
        case "lost" if first is not None:
            devices[0] = replace(first, state="lost", readings={}, missing={"power.draw_watts": machines.NOT_SUPPORTED})
        case "gone":
            devices = devices[1:]
        case "host":
            others["host"] = replace(snapshot.host, load=(1.0, 2.0, float(number)), container=str(number))
        case "bystander":
            others["bystanders"] = (machines.process(50 + number, gpu=None),)
        case "findings":
            others["findings"] = (machines.HELD,) * (number % 2)
        case "driver":
            others |= {"driver": None, "parents": {number: 1}, "problems": machines.no_driver().problems}
    taken = snapshot.taken_at + datetime.timedelta(seconds=1, microseconds=number)
    return replace(snapshot, taken_at=taken, devices=tuple(devices), processes=tuple(rows), **others)


def life(changes: list[tuple[str, int, Any]]) -> list[Snapshot]:
    first = machines.many(2, 6)
    shots = [replace(first, devices=(replace(first.devices[0], mig_instances=PARTS), first.devices[1]))]
    for change in changes:
        shots.append(changed(shots[-1], *change))
    return shots


@settings(max_examples=150, deadline=None)
@given(steps)
@example([("comes", 0, 0), ("cpu", 0, 5.0), ("comes", 0, 0)])  # two rows of one identity
def test_any_life_of_a_machine_comes_back(changes: list[tuple[str, int, Any]]) -> None:
    encoder, decoder, late = FrameEncoder(), FrameDecoder(), FrameDecoder()
    before = None
    for shot in life(changes):
        for kind, body in split_frames(encoder.frames(shot)):
            decoder.take(kind, body)
            late.take(kind, body)
        got = decoder.snapshot()
        assert got == shot
        assert decoder.at == shot.taken_at.timestamp()
        assert [list(one.readings) for one in got.devices] == [list(one.readings) for one in shot.devices]
        for row in shot.processes:
            same = tuple(one for one in shot.processes if (one.pid, one.create_time) == (row.pid, row.create_time))
            assert late.rows_of(row.pid, row.create_time) == same
        if before is not None and got.unchanged(before[1]):
            assert replace(before[0], taken_at=shot.taken_at, host=shot.host) == shot
        before = (shot, got)
    assert late.snapshot() == decoder.snapshot(), "also where nobody looked in between"


@settings(max_examples=150, deadline=None)
@given(steps, st.integers(0, 10**6), st.integers(1, 4))
def test_frames_that_were_cut_off_have_all_samples_before_the_cut(
    changes: list[tuple[str, int, Any]], cut: int, together: int
) -> None:
    shots, encoder = life(changes), FrameEncoder()
    data, ends, some = b"", list[int](), b""
    for number, shot in enumerate(shots):
        some += encoder.frames(shot)
        if number % together == together - 1 or number == len(shots) - 1:
            data += packed_frame(some) if together > 1 else some
            some = b""
        ends.append(0 if some else len(data))
    cut %= len(data) + 1
    whole = max((number + 1 for number, end in enumerate(ends) if end and end <= cut), default=0)
    decoder, got = FrameDecoder(), []
    for kind, body in split_frames(data[:cut]):
        decoder.take(kind, body)
        got.append(decoder.snapshot())
    assert got == shots[:whole]


def test_what_is_no_frame_of_this_version_is_refused() -> None:
    with pytest.raises(DamagedData, match="without a key frame"):
        FrameDecoder().take(DELTA, b"\x90")
    with pytest.raises(DamagedData):
        list(split_frames(framed(PACKED, b"no zlib")))
    with pytest.raises(DamagedData):
        FrameDecoder().take(KEY, b"\x90")


@settings(deadline=None)
@given(st.binary(max_size=40), st.integers(0, 200))
def test_a_damaged_delta_raises_nothing_else(noise: bytes, place: int) -> None:
    shot = machines.pair()
    encoder, decoder = FrameEncoder(), FrameDecoder()
    ((kind, body),) = split_frames(encoder.frames(shot))
    decoder.take(kind, body)
    later = replace(shot, taken_at=shot.taken_at + datetime.timedelta(seconds=1), processes=shot.processes[1:])
    ((kind, body),) = split_frames(encoder.frames(later))
    place %= len(body)
    with suppress(DamagedData):
        decoder.take(kind, body[:place] + noise + body[place + len(noise) :])
        decoder.snapshot()


def test_what_a_second_costs() -> None:
    """Of a machine of 200 processes: what has moved, wherever it is."""

    def cost(first: Snapshot, second: Snapshot) -> int:
        encoder = FrameEncoder()
        encoder.frames(first)
        return len(encoder.frames(second))

    shot = machines.many(8, 200)
    later = replace(shot, taken_at=shot.taken_at + datetime.timedelta(seconds=1))
    still = cost(shot, later)
    assert still < 60
    rows = list(later.processes)
    rows[150] = replace(rows[150], readings={**rows[150].readings, "cpu_percent": 12.5})
    assert cost(shot, replace(later, processes=tuple(rows))) - still < 20
    assert len(packed_frame(FrameEncoder().frames(shot))) < 25_000
