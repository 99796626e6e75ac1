"""What travels from the collector: whatever happens between two samples, the reader has the same snapshots."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.machine.history.sample_frames import (
    DELTA,
    KEY,
    FrameDecoder,
    FrameEncoder,
    split_frames,
)
from tests.ui import machines

LATER = datetime.timedelta(seconds=1)


def sent(sender: FrameEncoder, receiver: FrameDecoder, snapshot: Snapshot) -> tuple[bytes, int, Snapshot]:
    frame = sender.frames(snapshot)
    ((kind, body),) = split_frames(frame)
    return kind, len(body), receiver.receive(kind, body)


def with_readings(row: Any, **readings: Any) -> Any:
    return replace(row, readings={**row.readings, **readings})


def test_a_second_on_which_nothing_happens_is_small_and_known_as_such() -> None:
    sender, receiver = FrameEncoder(), FrameDecoder()
    snapshot = machines.many(8, 200)
    kind, _, before = sent(sender, receiver, snapshot)
    assert kind == KEY
    later = replace(snapshot, taken_at=snapshot.taken_at + LATER)
    kind, length, received = sent(sender, receiver, later)
    assert kind == DELTA
    assert length < 60
    assert received.unchanged(before)
    assert received == later


def test_what_changed_travels_and_nothing_else() -> None:
    sender, receiver = FrameEncoder(), FrameDecoder()
    snapshot = machines.many(8, 200)
    sent(sender, receiver, snapshot)
    rows = list(snapshot.processes)
    rows[7] = with_readings(rows[7], cpu_percent=12.5)
    devices = list(snapshot.devices)
    devices[3] = with_readings(devices[3], **{"temperature.gpu_celsius": 77})
    later = replace(snapshot, taken_at=snapshot.taken_at + LATER, processes=tuple(rows), devices=tuple(devices))
    kind, length, received = sent(sender, receiver, later)
    assert kind == DELTA
    assert length < 80, "two readings and where they belong"
    assert received.processes[7] == rows[7]
    assert received == later


def test_of_a_device_of_which_numbers_moved_these_numbers_travel_alone() -> None:
    sender, receiver = FrameEncoder(), FrameDecoder()
    snapshot = machines.many(8, 200)
    before = sent(sender, receiver, snapshot)[2]
    devices = tuple(with_readings(one, **{"temperature.gpu_celsius": 70 + one.index}) for one in snapshot.devices)
    later = replace(snapshot, taken_at=snapshot.taken_at + LATER, devices=devices)
    kind, length, received = sent(sender, receiver, later)
    assert kind == DELTA
    assert length < 100
    assert received.unchanged(before, devices=False)
    assert not received.unchanged(before)
    assert received == later
    assert [list(one.readings) for one in received.devices] == [list(one.readings) for one in devices]


@pytest.mark.parametrize(
    "change",
    [
        lambda one: replace(one, readings=dict(reversed(one.readings.items()))),
        lambda one: replace(one, readings={k: v for k, v in one.readings.items() if k != "power.draw_watts"}),
        lambda one: replace(one, state="lost", readings={**one.readings, "temperature.gpu_celsius": 99}),
        lambda one: replace(one, missing={}),
        lambda one: with_readings(one, **{"temperature.gpu_celsius": 99, "performance.state": "P8"}),
    ],
)
def test_whatever_becomes_of_a_device_arrives(change: Callable[[Device], Device]) -> None:
    sender, receiver = FrameEncoder(), FrameDecoder()
    snapshot = machines.pair()
    sent(sender, receiver, snapshot)
    later = replace(snapshot, devices=(snapshot.devices[0], change(snapshot.devices[1])))
    kind, _, received = sent(sender, receiver, later)
    assert (kind, received) == (DELTA, later)
    assert received.devices[0] is not later.devices[0]


def test_what_has_not_changed_is_the_object_of_the_snapshot_before() -> None:
    sender, receiver = FrameEncoder(), FrameDecoder()
    snapshot = machines.many(2, 20)
    before = sent(sender, receiver, snapshot)[2]
    for _ in range(3):
        snapshot = replace(snapshot, taken_at=snapshot.taken_at + LATER)
        received = sent(sender, receiver, snapshot)[2]
        assert received.processes is before.processes
        assert received.devices is before.devices
        assert received == snapshot
    rows = (with_readings(snapshot.processes[0], cpu_percent=99.0), *snapshot.processes[1:])
    received = sent(sender, receiver, replace(snapshot, processes=rows))[2]
    assert received == replace(snapshot, processes=rows)
    assert received.devices is before.devices
    assert [now is then for now, then in zip(received.processes, before.processes, strict=True)] == [False] + [
        True
    ] * 19


def test_of_a_process_that_goes_nothing_is_sent_and_of_one_that_comes_its_row() -> None:
    sender, receiver = FrameEncoder(), FrameDecoder()
    snapshot = machines.many(8, 200)
    before = sent(sender, receiver, snapshot)[2]
    fewer = replace(snapshot, processes=snapshot.processes[1:])
    kind, length, received = sent(sender, receiver, fewer)
    assert kind == DELTA
    assert length < 500
    assert received == fewer
    assert [now is then for now, then in zip(received.processes, before.processes[1:], strict=True)] == [True] * 199
    more = replace(snapshot, processes=(*fewer.processes, machines.process(500)))
    kind, length, received = sent(sender, receiver, more)
    assert kind == DELTA
    assert length < 1500
    assert received == more


CHANGES = st.lists(
    st.sampled_from(["nothing", "cpu", "heat", "problem", "goes", "comes", "order", "bystander", "driver"]), max_size=12
)


@settings(max_examples=60, deadline=None)
@given(CHANGES)
def test_any_sequence_arrives_as_it_was_sent(changes: list[str]) -> None:
    sender, receiver = FrameEncoder(), FrameDecoder()
    snapshot = machines.many(2, 6)
    before = sent(sender, receiver, snapshot)[2]
    for number, change in enumerate(changes):
        rows: list[Process] = list(snapshot.processes)
        devices: list[Device] = list(snapshot.devices)
        others: dict[str, Any] = {}
        match change:
            case "cpu" if rows:
                rows[number % len(rows)] = with_readings(rows[number % len(rows)], cpu_percent=float(number))
            case "heat":
                devices[0] = with_readings(devices[0], **{"temperature.gpu_celsius": 40 + number})
            case "problem":
                others["problems"] = machines.no_driver().problems[:1] if not snapshot.problems else ()
            case "goes":
                rows = rows[1:]
            case "comes":
                rows.append(machines.process(90 + number))
            case "order":
                rows.reverse()
            case "bystander":
                others["bystanders"] = (machines.process(50, gpu=None),) if not snapshot.bystanders else ()
            case "driver":
                others["driver"] = None if snapshot.driver is not None else machines.pair().driver
        taken = snapshot.taken_at + LATER
        after = replace(snapshot, taken_at=taken, processes=tuple(rows), devices=tuple(devices), **others)
        _, _, received = sent(sender, receiver, after)
        assert received == after
        if received.unchanged(before):
            assert replace(snapshot, taken_at=taken) == after
        snapshot, before = after, received
