"""Snapshots that were kept come back as they were, whole, at whatever age, and take little room."""

from __future__ import annotations

import datetime
import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.core.model.snapshot import Host, MigInstance, Snapshot
from gpuwatch.machine.history.last_hour import LEVELS, MAX_BYTES, LastHour
from gpuwatch.machine.history.metric_history import History
from gpuwatch.machine.history.sample_frames import KEY, FrameDecoder, FrameEncoder
from tests.ui import machines

METRICS = frozenset({"utilization.gpu_percent", "memory.used_bytes"})


def filled(seconds: int, *, gpus: int = 2, rows: int = 5, step: int = 1) -> LastHour:
    timeline = LastHour()
    for tick in range(0, seconds, step):
        timeline.add(machines.many(gpus, rows, tick=tick))
    return timeline


def alike(kept: Snapshot, was: Snapshot) -> None:
    """Equal, readings in the same order."""
    assert kept == was
    for ours, theirs in zip((*kept.devices, *kept.processes), (*was.devices, *was.processes), strict=True):
        assert list(ours.readings) == list(theirs.readings)


def test_each_sample_comes_back_as_it_was() -> None:
    timeline = LastHour()
    shots = [machines.lively(tick) for tick in range(200)]
    for shot in shots:
        timeline.add(shot, (machines.HELD,))
    assert timeline.times == [shot.taken_at.timestamp() for shot in shots]
    for shot in shots[::7]:
        kept = timeline.at(shot.taken_at.timestamp())
        assert kept is not None
        alike(kept.snapshot, shot)
        assert kept.findings == (machines.HELD,)


@pytest.mark.parametrize("make", [machines.broken, machines.no_driver, machines.simulated])
def test_every_kind_of_machine_comes_back(make: object) -> None:
    timeline = LastHour()
    assert callable(make)
    for tick in range(3):
        timeline.add(make(tick))
    kept = timeline.at(timeline.times[1] + 0.5)
    assert kept is not None
    alike(kept.snapshot, make(1))


def test_a_name_that_is_no_utf8_is_kept_as_far_as_it_is() -> None:
    timeline = LastHour()
    timeline.add(machines.hostile())
    kept = timeline.at(timeline.times[0])
    assert kept is not None
    commands = [row.command for row in kept.snapshot.processes]
    assert commands[0] == machines.hostile().processes[0].command
    assert "broken ? surrogate" in commands


def test_instances_of_mig_come_back_without_a_row_of_their_own() -> None:
    parts = tuple(
        MigInstance(
            id=f"{n}/0",
            index=n,
            uuid=f"MIG-{n}",
            gpu_instance=n,
            compute_instance=0,
            profile="1g.10gb",
            readings={"memory.used_bytes": n * 2**30, "memory.total_bytes": 10 * 2**30},
            missing={"memory.reserved_bytes": machines.NOT_SUPPORTED},
        )
        for n in (1, 4)
    )
    shot = machines.snapshot((machines.device(0, mig_instances=parts), machines.device(1)))
    timeline = LastHour()
    timeline.add(shot)
    kept = timeline.at(timeline.times[0])
    assert kept is not None
    assert kept.snapshot.devices[0].mig_instances == parts
    alike(kept.snapshot, shot)


def test_bystanders_and_the_work_of_workers_come_back() -> None:
    aside = machines.process(5, gpu=None, type="H", cuda_loaded=False)
    timeline = LastHour()
    for tick in range(3):
        row = machines.process(0, workers_cpu_percent=123.5 + tick)
        timeline.add(machines.snapshot((machines.device(0),), (row,), tick=tick, bystanders=(aside,)))
    kept = timeline.at(timeline.times[1])
    assert kept is not None
    assert kept.snapshot.processes[0].workers_cpu_percent == 124.5
    assert [(one.pid, one.cuda_loaded) for one in kept.snapshot.bystanders] == [(aside.pid, False)]
    assert len(kept.snapshot.processes) == 1


def test_a_sample_that_is_the_same_but_for_its_moment() -> None:
    timeline, shot = LastHour(), machines.many(8, 50)
    sender, receiver, before = FrameEncoder(), FrameDecoder(), None
    for seconds in range(5):
        later = msgspec.structs.replace(shot, taken_at=shot.taken_at + datetime.timedelta(seconds=seconds))
        frame = sender.frames(later)
        got = receiver.receive(frame[4:5], frame[5:])
        assert got.unchanged(before) == (seconds > 0)
        before = got
        timeline.add(got)
        kept = timeline.at(timeline.times[-1])
        assert kept is not None
        alike(kept.snapshot, later)


def test_a_sample_of_which_devices_alone_are_others() -> None:
    timeline, whole, shot = LastHour(), LastHour(), machines.many(8, 50)
    receiver_of_all = FrameDecoder()
    aside = machines.process(60, gpu=None, type="H", cuda_loaded=False, create_time=None)
    shot = msgspec.structs.replace(shot, bystanders=(aside,))
    sender, receiver, before = FrameEncoder(), FrameDecoder(), None
    for seconds in range(5):
        devices = list(shot.devices)
        devices[2] = msgspec.structs.replace(
            devices[2],
            readings={**devices[2].readings, "energy.total_joules": 1e6 + seconds},
            state_detail="x" * (seconds // 3),
        )
        shot = msgspec.structs.replace(
            shot, taken_at=machines.NOON + datetime.timedelta(seconds=seconds), devices=tuple(devices)
        )
        frame = sender.frames(shot)
        got = receiver.receive(frame[4:5], frame[5:])
        assert got.unchanged(before, devices=False) == (seconds > 0)
        before = got
        timeline.add(got)
        whole.add(receiver_of_all.receive(KEY, msgspec.msgpack.encode(shot)))
    assert [kept and kept.snapshot for kept in map(timeline.at, timeline.times)] == [
        kept and kept.snapshot for kept in map(whole.at, whole.times)
    ]


def test_findings_of_then_stay_until_others_come() -> None:
    timeline = LastHour()
    timeline.add(machines.pair(0), (machines.HELD,))
    timeline.add(machines.pair(1))
    timeline.add(machines.pair(2), ())
    told = [timeline.at(at) for at in timeline.times]
    assert [len(one.findings) for one in told if one is not None] == [1, 1, 0]


def test_the_older_the_fewer_and_an_hour_or_little_more() -> None:
    timeline = filled(5400)
    times = timeline.times
    last = times[-1]
    assert 3600 <= last - times[0] <= 4900, "whole chunks go, so the oldest is a little older"
    assert times == sorted(times)
    gaps = [(last - earlier, later - earlier) for earlier, later in itertools.pairwise(times)]
    assert all(gap <= 1 for age, gap in gaps if age <= LEVELS[0][0])
    assert all(gap <= 6 for age, gap in gaps if age <= LEVELS[1][0])
    assert all(gap <= 16 for _, gap in gaps)
    assert len(times) < 1100
    for age in (0, 700, 2500, 3400):
        kept = timeline.at(last - age)
        assert kept is not None
        alike(kept.snapshot, machines.many(2, 5, tick=round(kept.at - machines.NOON.timestamp())))


def test_before_the_first_is_the_first_and_an_empty_one_has_none() -> None:
    assert LastHour().at(0) is None
    timeline = filled(3)
    kept = timeline.at(0)
    assert kept is not None
    assert kept.at == timeline.times[0]


def test_samples_four_times_a_second_are_bounded_too() -> None:
    timeline = LastHour()
    for quarter in range(6000):
        shot = machines.snapshot((machines.device(0, tick=quarter),))
        timeline.add(msgspec.structs.replace(shot, taken_at=machines.NOON + datetime.timedelta(seconds=quarter / 4)))
    assert len(timeline.times) < 1000


def test_room_for_eight_gpus_and_two_hundred_processes_that_come_and_go() -> None:
    timeline = LastHour()
    for tick in range(300):
        shot = machines.many(8, 200, tick=tick)
        fresh = tuple(
            msgspec.structs.replace(row, pid=row.pid + 100_000 * tick) if n % 10 == tick % 10 else row
            for n, row in enumerate(shot.processes)
        )
        timeline.add(msgspec.structs.replace(shot, processes=fresh))
    assert timeline.size_bytes / len(timeline.times) * 1000 < MAX_BYTES


def test_it_never_grows_above_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuwatch.machine.history.last_hour.MAX_BYTES", 200_000)
    timeline = filled(900, gpus=8, rows=60)
    assert timeline.size_bytes <= 200_000
    assert timeline.times[-1] == machines.NOON.timestamp() + 899


def test_the_history_of_then_is_what_the_ring_had() -> None:
    ring, timeline = History(), LastHour()
    for tick in range(100):
        shot = machines.lively(tick)
        ring.add(shot)
        timeline.add(shot)
    moment = timeline.times[60]
    cut, made = ring.until(moment), timeline.history(moment, 600, METRICS)
    assert list(cut.times) == list(made.times) == timeline.times[:61]
    for device in machines.lively(60).devices:
        for metric in METRICS:
            assert list(made.series(device.uuid, metric)) == pytest.approx(list(cut.series(device.uuid, metric)))
    ring.add(machines.lively(100))
    assert cut.times[-1] == moment


def test_one_process_through_time() -> None:
    timeline = LastHour()
    row = machines.process(0)
    for tick in range(10):
        timeline.add(machines.snapshot((machines.device(0),), (row,) if 3 <= tick < 6 else (), tick=tick))
    told = list(timeline.process((row.pid, row.create_time), 0, timeline.times[-1]))
    assert [len(rows) for _, rows in told] == [0, 0, 0, 1, 1, 1, 0, 0, 0, 0]
    assert told[3][1][0].readings["gpu_memory_bytes"] == row.readings["gpu_memory_bytes"]


numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(-1e30, 1e30, allow_subnormal=False), st.text(max_size=8))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "c", "d_seconds"]), numbers), min_size=1, max_size=8))
def test_whatever_was_read_comes_back(samples: list[dict[str, int | float | str]]) -> None:
    timeline = LastHour()
    host = Host(hostname=None, cpu_percent=None, cpu_count=None, memory_used_bytes=None, memory_total_bytes=None)
    for tick, readings in enumerate(samples):
        device = msgspec.structs.replace(machines.device(0), readings=readings)
        timeline.add(machines.snapshot((device,), tick=tick, host=host))
    for at, readings in zip(timeline.times, samples, strict=True):
        kept = timeline.at(at)
        assert kept is not None
        got = kept.snapshot.devices[0].readings
        assert list(got) == list(readings)
        for name, value in readings.items():
            exact = isinstance(value, str) or -(2**63) <= value < 2**64
            assert got[name] == (value if exact else float(value))
