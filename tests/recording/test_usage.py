"""GPU time of a made-up week, worked out by hand; and of files that are damaged, older, or still written."""

from __future__ import annotations

import datetime
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.model.gpu_time_usage import GroupBy, Usage, UsageGroup
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.recording.gpu_time_and_energy import GpuTime, GpuTimeMeter, merged_times, with_bounded_processes
from gpuwatch.machine.recording.gpu_time_by_group import gpu_usage
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.writer import RecordingWriter
from tests.recording import week
from tests.recording.week import BEGIN, GIB, HOUR
from tests.ui import machines

JUMP = 5 / 60
"""Hours of the interval in which the clock was set back: nobody knows how long it was."""
HELD = {"alice": 18 + 6 / 2 + 5, "bob": 6 / 2 + 50 - JUMP, "carol": 10, "dave": 10}
USED = {"alice": 24 * 0.8 + 5, "bob": 6 * 0.1, "carol": 10 * 0.5, "dave": None}
KILOWATT_HOUR = 3.6e6


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("week") / "week.gpuwatch"
    week.record(path)
    return path


def of(path: Path, by: GroupBy = "user", begin: float | None = None, end: float | None = None) -> Usage:
    """Hours since the begin of the week, by the clock on the wall."""
    times = (None if hour is None else BEGIN + hour * HOUR for hour in (begin, end))
    with Recording(path) as recording:
        return gpu_usage(recording, *times, by)


def group(document: Usage, **facts: object) -> UsageGroup:
    (found,) = [one for one in document.groups if all(getattr(one, name) == facts[name] for name in facts)]
    return found


@pytest.mark.thorough
def test_the_week_is_what_it_is_by_hand(file: Path) -> None:
    document = of(file)
    assert (document.hours, document.hours_recorded) == (pytest.approx(167), pytest.approx(168 - 5 - JUMP))
    assert [(gap.begin.hour, gap.end.hour) for gap in document.gaps] == [(10, 15)]
    assert {one.user: one.gpu_hours_held for one in document.groups} == pytest.approx(HELD)
    assert {one.user: one.gpu_hours_used for one in document.groups} == pytest.approx(USED)
    alice, bob = group(document, user="alice"), group(document, user="bob")
    carol, dave = group(document, user="carol"), group(document, user="dave")
    assert (alice.process_hours, bob.process_hours) == (pytest.approx(29), pytest.approx(56 - JUMP))
    assert alice.sm_percent_mean == pytest.approx(100 * (24 * 0.8 + 5) / 29)
    assert (alice.sm_percent_max, bob.sm_percent_max, carol.sm_percent_max) == (100, 10, 50)
    assert (alice.memory_peak_bytes, bob.memory_peak_bytes) == (60 * GIB, 20 * GIB)
    assert [one.processes for one in (alice, bob, carol, dave)] == [2, 2, 1, 1], "a pid that is used again is another"
    assert (carol.process_hours_shared, carol.gpu_hours_unknown) == (pytest.approx(10), 0)
    assert (dave.sm_percent_mean, dave.sm_percent_max, dave.gpu_hours_unknown) == (None, None, pytest.approx(10))
    # The one that computes more has drawn more.
    # The counters have moved by 1 kW and 0.5 kW, GPU 1 drew 0.4 kW; unknown over a gap, and when the clock was set.
    assert alice.energy_joules == pytest.approx((18 + 6 * 80 / 90 + 5 * 0.4) * KILOWATT_HOUR)
    assert bob.energy_joules == pytest.approx((6 * 10 / 90 + 50 - JUMP) * KILOWATT_HOUR)
    assert carol.energy_joules == pytest.approx(10 * 0.4 * KILOWATT_HOUR)
    assert [one.energy_gpu_hours for one in (alice, bob, carol)] == pytest.approx([26, 53 - JUMP, 10])
    assert [one.energy_sampled_gpu_hours for one in (alice, bob, carol)] == pytest.approx([5, 0, 10])
    assert dave.energy_joules == pytest.approx(10 * 0.5 * KILOWATT_HOUR)
    assert document.graphics_processes == 1
    (note,) = document.notes
    assert "set back by 60 min" in note


def test_the_total_counts_every_card_once(file: Path) -> None:
    document = of(file)
    assert document.total.gpu_hours_held == pytest.approx(sum(HELD.values()))
    assert document.total.gpu_hours_held == pytest.approx(sum(one.hours_held for one in document.devices))
    assert document.total.process_hours == pytest.approx(sum(HELD.values()) + 6)
    assert document.total.gpu_hours_used == pytest.approx(sum(hours for hours in USED.values() if hours is not None))
    first, second, third = document.devices
    recorded = 168 - 5 - JUMP
    assert [one.hours_recorded for one in document.devices] == pytest.approx([recorded] * 3)
    assert [one.hours_held for one in document.devices] == pytest.approx([24 + 50 - JUMP, 15, 10])
    assert (first.hours_used, second.hours_used, third.hours_used) == (
        pytest.approx(24 * 0.8 + 6 * 0.1),
        pytest.approx(10),
        None,
    )
    assert (first.hours_held_idle, third.hours_held_unknown) == (pytest.approx(50 - JUMP), pytest.approx(10))
    assert [one.hours_free for one in document.devices] == pytest.approx(
        [recorded - 74 + JUMP, recorded - 15, recorded - 10]
    )
    assert first.energy_free_joules == pytest.approx((recorded - 74 + JUMP) * KILOWATT_HOUR)
    assert second.energy_joules == pytest.approx(recorded * 0.4 * KILOWATT_HOUR)
    assert second.energy_free_joules == pytest.approx((recorded - 15) * 0.4 * KILOWATT_HOUR)
    assert [one.energy_sampled for one in document.devices] == [False, True, False]


@pytest.mark.parametrize(
    ("lack", "watts", "joules"),
    [
        (Missing("not_supported"), (300.0,) * 11, 3000.0),
        (Missing("not_supported"), (100.0, 300.0) * 5 + (100.0,), 2000.0),
        (Missing("not_supported"), (300.0,) * 5 + (None,) + (300.0,) * 5, 2400.0),
        (Missing("not_supported"), (None,) * 11, None),
        (Missing("failed"), (300.0,) * 11, None),  # the counter may come back: nothing is estimated meanwhile
    ],
)
def test_energy_without_a_counter(lack: Missing, watts: tuple[float | None, ...], joules: float | None) -> None:
    meter = GpuTimeMeter(1.0)
    for tick, drawn in enumerate(watts):
        (device,) = machines.many(1, 0).devices
        readings = {name: value for name, value in device.readings.items() if name != "energy_joules"}
        del readings["power.draw_watts"]
        if drawn is not None:
            readings["power.draw_watts"] = drawn
        device = replace(device, readings=readings, missing={"energy_joules": lack, "power.draw_watts": lack})
        at = machines.NOON + datetime.timedelta(seconds=tick)
        meter.add(replace(machines.many(1, 2), devices=(device,), taken_at=at))
    time = merged_times(meter.pop_hours().values())
    (device_time,) = time.devices
    assert (device_time.energy_joules if device_time.energy_seconds else None) == joules
    assert device_time.sampled_seconds == device_time.energy_seconds
    of_processes = [one.energy_joules for one in time.processes if one.energy_seconds]
    assert of_processes == ([] if joules is None else pytest.approx([0, joules]))  # one has run no kernel


@pytest.mark.parametrize(
    ("by", "field", "wanted"),
    [
        ("job", "container", {"slurm job 1": 21, "slurm job 2": 10, "slurm job 3": 5, "pod infer-0": 3,
                              "container 4f1d4f1d4f1d": 10, None: 50 - JUMP}),
        ("container", "container", {"pod infer-0": 3, "container 4f1d4f1d4f1d": 10, None: 50 - JUMP + 36}),
        ("command", "command", {"train.py": 26, "infer.py": 3, "eval.py": 10, "tune.py": 10, "jupyter-lab": 50 - JUMP}),
        ("framework", "framework", {"torch 2.11.0": 39, "tensorflow 2.21.0": 10, None: 50 - JUMP}),
    ],
)  # fmt: skip
def test_groups(file: Path, by: GroupBy, field: str, wanted: dict[str | None, float]) -> None:
    found = {getattr(one, field): one.gpu_hours_held for one in of(file, by).groups}
    if by == "container":  # what has none has several jobs
        assert found.pop(None, None) == pytest.approx(wanted.pop(None))
    assert found == pytest.approx(wanted)


def test_each_process_has_its_own_cost(file: Path) -> None:
    document = of(file, "process")
    assert len(document.groups) == 6
    assert {(one.pid, one.user) for one in document.groups} >= {(100, "alice"), (100, "carol")}
    assert group(document, pid=100, user="carol").gpu_hours_used == pytest.approx(5)


def test_a_stretch_that_no_hour_begins_or_ends(file: Path) -> None:
    document = of(file, begin=12.5, end=17.25)
    assert {one.user: one.gpu_hours_held for one in document.groups} == pytest.approx({"alice": 2.375, "bob": 2.375})
    assert group(document, user="alice").gpu_hours_used == pytest.approx(4.75 * 0.8)
    assert document.hours_recorded == pytest.approx(4.75)
    # Begins in one hour, ends in the next one.
    assert of(file, begin=12.75, end=13.5).total.gpu_hours_held == pytest.approx(0.75)
    over_the_gap = of(file, begin=81.5, end=88)
    assert (over_the_gap.hours, over_the_gap.hours_recorded) == (pytest.approx(6.5), pytest.approx(1.5))
    assert over_the_gap.total.gpu_hours_held == pytest.approx(1.5)


def test_stored_hours_are_those_of_the_samples(file: Path, tmp_path: Path) -> None:
    """Damaged ones are counted again."""
    wanted = of(file, "process")
    for name, change in (
        ("damaged", "UPDATE gpu_time SET block = x'00' WHERE begin % 7200 = 0"),
        ("none", "DELETE FROM gpu_time"),
    ):
        path = tmp_path / f"{name}.gpuwatch"
        shutil.copy(file, path)
        with sqlite3.connect(path) as db:
            db.executescript(change)
        found = of(path, "process")
        assert found.hours_recorded == pytest.approx(wanted.hours_recorded)
        for one, other in zip(found.groups, wanted.groups, strict=True):
            assert (one.pid, one.processes, one.memory_peak_bytes) == (
                other.pid,
                other.processes,
                other.memory_peak_bytes,
            )
            assert one.gpu_hours_held == pytest.approx(other.gpu_hours_held)
            assert one.gpu_hours_used == pytest.approx(other.gpu_hours_used)
            assert one.energy_joules == pytest.approx(other.energy_joules)


def test_hours_outlive_their_samples(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "old.gpuwatch"
    shutil.copy(file, path)
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM data WHERE id <= 30")
        db.execute("DELETE FROM minutes WHERE id <= 30")
        db.execute("DELETE FROM processes")
    assert group(of(path), user="alice").gpu_hours_held == pytest.approx(HELD["alice"])
    assert of(path).hours_recorded == pytest.approx(168 - 5 - JUMP)


def test_a_recording_that_is_written(tmp_path: Path) -> None:
    """Samples that are in no block yet count too."""
    path = tmp_path / "growing.gpuwatch"
    writer = RecordingWriter(path, interval=week.STEP, seal_seconds=HOUR / 3)
    for number, (_, shot) in enumerate(week.samples()):
        if number > 30:
            break
        writer.add(shot)
        if number in (6, 18, 30):
            assert of(path).total.gpu_hours_held == pytest.approx(number / 12)
    writer.close()
    assert of(path).total.gpu_hours_held == pytest.approx(2.5)


def test_nothing_is_there(file: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.gpuwatch"
    RecordingWriter(empty).close()
    with pytest.raises(GpuwatchError, match="no samples yet"):
        of(empty)
    with pytest.raises(UsageError, match="nothing was recorded from"):
        of(file, begin=200, end=300)
    with pytest.raises(UsageError, match="is after the end"):
        of(file, begin=20, end=10)


def _samples(count: int, processes: Callable[[int], list[dict[str, object]]], **readings: float) -> Iterator[Snapshot]:
    """One GPU, a sample each second; ``processes``: the fields of each in a sample."""
    base = machines.many(1, 1)
    device, row = replace(base.devices[0], readings={**base.devices[0].readings, **readings}), base.processes[0]
    for tick in range(count):
        rows = [replace(row, create_time=1.0, **fields) for fields in processes(tick)]  # type: ignore[arg-type]
        at = machines.NOON + datetime.timedelta(seconds=tick)
        yield replace(base, devices=(device,), processes=tuple(rows), taken_at=at)


def test_what_a_neighbour_computes_that_has_just_begun_is_not_credited() -> None:
    lack = {"sm_percent": Missing("no_sample")}

    def rows(tick: int) -> list[dict[str, object]]:
        idle = {"pid": 1, "readings": {}, "missing": lack}
        return [idle] if tick < 9 else [idle, {"pid": 2, "readings": {"sm_percent": 50.0}, "missing": {}}]

    meter = GpuTimeMeter(1.0)
    for snapshot in _samples(10, rows, **{"utilization.gpu_percent": 50.0}):
        device = snapshot.devices[0]
        busy = 50.0 if len(snapshot.processes) == 2 else 0.0
        readings = {**device.readings, "utilization.gpu_percent": busy}
        meter.add(replace(snapshot, devices=(replace(device, readings=readings),)))
    idle = next(one for one in merged_times(meter.pop_hours().values()).processes if one.pid == 1)
    assert (idle.sm_percent_max, idle.used_seconds) == (0.0, 0.0)


def test_short_processes_by_the_thousand_are_summed_and_a_counter_that_stands_still_keeps_none() -> None:
    meter, known = GpuTimeMeter(1.0), GpuTime()
    for second, snapshot in enumerate(
        _samples(600, lambda tick: [{"pid": 20 * tick + pid} for pid in range(1, 61)], energy_joules=5.0)
    ):
        meter.add(snapshot)
        if second % 60 == 59:
            minute = merged_times(meter.pop_hours().values())
            known = with_bounded_processes(merged_times((known, minute)), minute)
    assert len(known.processes) < 4100
    assert len(meter._latest_rows) < 4100
    assert sum(len(window.held) for window in meter._windows.values()) < 20 * 130
    assert sum(one.gpu_seconds for one in known.processes) == pytest.approx(known.devices[0].held_seconds)
    assert sum(1 + one.more for one in known.processes) == 20 * 599 + 60
