"""Recordings: what was written is read back, whatever happens to the writer, the clock and the machine."""

from __future__ import annotations

import datetime
import os
import shutil
import sqlite3
import stat
import tempfile
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.sample_frames import FINDINGS, KEY, DamagedData, FrameDecoder, framed
from gpuwatch.machine.recording import gpu_time_and_energy, minute_and_hour_means
from gpuwatch.machine.recording.cut_recording import cut_out
from gpuwatch.machine.recording.database_cells import with_checksum
from gpuwatch.machine.recording.database_rows import event_of, finding_of, life_of
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.recording_info import check_lines, check_recording, info_lines, recording_info
from gpuwatch.machine.recording.storable_snapshots import StorableSnapshots
from gpuwatch.machine.recording.time_expressions import time_text
from gpuwatch.machine.recording.writer import Clock, RecordingStopped, RecordingWriter
from tests.recording.days import NOON, day
from tests.ui import machines

START = NOON.timestamp()
HOUR = 3600.0
SECOND = datetime.timedelta(seconds=1)
HOT = Finding(id="throttle.thermal", severity="warning", certainty="fact", title="GPU 0 is throttled", since=NOON)


class FakeClock:
    """Clocks that a test sets; with :meth:`take` they follow a sample."""

    def __init__(self) -> None:
        self.wall, self.boot, self.monotonic, self.machine = START, 1000.0, 900.0, "boot-1"

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.boot, lambda: self.monotonic, lambda: self.machine)

    def go(self, seconds: float) -> None:
        self.wall, self.boot, self.monotonic = self.wall + seconds, self.boot + seconds, self.monotonic + seconds

    def take(self, snapshot: Snapshot) -> None:
        self.go(snapshot.taken_at.timestamp() - self.wall)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "test.gpuwatch"


def record(file: Path, shots: list[Snapshot], clock: FakeClock, **options: float) -> RecordingWriter:
    """Records the samples, and leaves the writer open."""
    writer = RecordingWriter(file, clock=clock.clock(), **options)  # type: ignore[arg-type]
    for shot in shots:
        clock.take(shot)
        writer.add(shot)
    return writer


def stored(shots: list[Snapshot]) -> list[Snapshot]:
    storable = StorableSnapshots()
    return [storable.of(shot) for shot in shots]


def read(file: Path) -> list[Snapshot]:
    with Recording(file) as recording:
        return [kept.snapshot for kept in recording.snapshots()]


def killed(file: Path, folder: Path) -> Path:
    """The files as a kill leaves them."""
    folder.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{file}{suffix}", folder / f"{file.name}{suffix}")
    return folder / file.name


def test_what_was_recorded_is_read_back(file: Path) -> None:
    shots = list(day(2, 5, 200))
    writer = record(file, shots, FakeClock())
    wanted = stored(shots)
    assert read(file) == wanted, "while it is written"
    writer.close()
    assert read(file) == wanted
    assert [path.name for path in file.parent.iterdir()] == [file.name], "one file at rest"
    with Recording(file) as recording:
        assert recording.samples == len(recording.times) == 200
        times = [shot.taken_at.timestamp() for shot in shots]
        assert list(recording.times) == times
        assert (recording.begin, recording.end, recording.times[57:63]) == (times[0], times[-1], times[57:63])
        for place in (0, 1, 59, 60, 61, 133, 199):
            kept = recording.at(times[place] + 0.3)
            assert kept is not None
            assert kept.snapshot == wanted[place]
        first_of_all = recording.at(0.0)
        assert first_of_all is not None
        assert first_of_all.at == times[0]
        row = shots[0].processes[2]
        rows = list(recording.process((row.pid, row.create_time), times[50], times[70]))
        assert rows == [(times[n], (wanted[n].processes[2],)) for n in range(50, 71)]
        history = recording.history(times[150], 100.0, frozenset({"power.draw_watts"}))
        uuid = shots[0].devices[0].uuid
        first = next(n for n, at in enumerate(times) if at >= times[150] - 100.0)
        assert list(history.times) == times[first:151]
        assert list(history.series(uuid, "power.draw_watts")) == [
            shot.devices[0].number("power.draw_watts") for shot in shots[first:151]
        ]


def test_unchanged_parts_stay_the_same_objects_beyond_a_minute(file: Path) -> None:
    first = machines.many(2, 6)
    shots = [replace(first, taken_at=shot.taken_at) for shot in day(1, 0, 130)]
    record(file, shots, FakeClock()).close()
    got = read(file)
    assert len(got) == 130
    assert all(after.unchanged(before) for before, after in pairwise(got))


def test_events_findings_and_lives_are_rows_of_their_own(file: Path) -> None:
    clock = FakeClock()
    writer = RecordingWriter(file, clock=clock.clock())
    event = MachineEvent(at=START + 3, kind="throttle.began", text="GPU 0 is throttled", severity="warning")
    for number, shot in enumerate(day(1, 2, 90)):
        clock.take(shot)
        hot = (HOT,) if 30 <= number < 60 else (replace(HOT, until=shot.taken_at),) if number == 60 else ()
        writer.add(shot, hot, [event] if number == 30 else ())
    writer.close("by a test")
    with Recording(file) as recording:
        assert [one.kind for one in recording.events()] == ["recording.began", "throttle.began", "recording.ended"]
        (found,) = recording.findings()
        assert (found.since, found.finding.title) == (START, HOT.title)
        assert found.until == pytest.approx(START + 60, abs=0.1)
        assert recording.findings(START + 70) == []
        assert [len(kept.findings) for kept in recording.snapshots()] == [0] * 30 + [1] * 31 + [0] * 29
        lives = recording.processes()
        assert [(one.pid, one.user) for one in lives] == [(2210, "alice"), (2247, "bob")]
        used = [shot.processes[0].number("sm_percent") or 0.0 for shot in day(1, 2, 90)]
        assert lives[0].sm_percent_max == max(used)
        assert lives[0].sm_seconds == pytest.approx(89, abs=0.1)
        assert lives[0].sm_percent_seconds == pytest.approx(sum(used[1:]), rel=0.01)
        (run,) = recording.sessions
        assert run.why == "by a test"


def test_means_are_those_of_the_samples(file: Path) -> None:
    shots = list(day(2, 0, 700, seed=3, begin=NOON.replace(minute=55)))
    record(file, shots, FakeClock()).close()
    uuid, metric = shots[0].devices[1].uuid, "power.draw_watts"
    with Recording(file) as recording:
        for seconds in (60, 3600):
            points = recording.summaries(seconds, 0, START * 2, frozenset({metric}))
            wanted: dict[int, list[float]] = {}
            for shot in shots:
                value = shot.devices[1].number(metric)
                assert value is not None
                wanted.setdefault(int(shot.taken_at.timestamp() // seconds * seconds), []).append(value)
            assert list(points) == sorted(wanted)
            for begin, values in wanted.items():
                found = points[begin][uuid, metric]
                assert (found.least, found.most, found.samples) == (min(values), max(values), len(values))
                assert found.mean == pytest.approx(sum(values) / len(values), rel=1e-6)


@pytest.mark.parametrize("end", ["at work", "closed", "killed", "continued"])
@pytest.mark.parametrize("onset", [START + 30, None])
def test_a_finding_that_is_never_reworded_holds_until_its_last_sample(
    file: Path, tmp_path: Path, end: str, onset: float | None
) -> None:
    since = datetime.datetime.fromtimestamp(onset, datetime.UTC) if onset is not None else None
    lost = replace(HOT, id="hardware.fault", title="GPU 0 has fallen off the bus", since=since)
    clock, shots = FakeClock(), list(day(1, 2, 200))
    writer = RecordingWriter(file, clock=clock.clock())
    for number, shot in enumerate(shots):
        clock.take(shot)
        writer.add(shot, (lost,) if 30 <= number < 150 else ())
        if number == 100:  # within a minute that is open
            with Recording(file) as recording:
                assert [one.until for one in recording.findings(START + 90)] == [shot.taken_at.timestamp()]
    if end == "killed":
        file = killed(file, tmp_path / "left")
    elif end == "continued":
        RecordingWriter(killed(file, tmp_path / "left"), clock=clock.clock()).close()
        file = tmp_path / "left" / file.name
    elif end == "closed":
        writer.close()
    with Recording(file) as recording:
        held = recording.findings(START + 140)
        assert [one.until for one in held] == [shots[149].taken_at.timestamp()]
        assert onset is None or held[0].since == onset
        assert recording.findings(START + 151) == []


def test_a_killed_writer_loses_nothing_that_it_was_given(file: Path, tmp_path: Path) -> None:
    shots = list(day(2, 5, 100))
    clock = FakeClock()
    writer = record(file, shots[:90], clock)
    left = killed(file, tmp_path / "left")
    writer.close()
    assert read(left) == stored(shots[:90])
    record(left, shots[90:], clock).close()
    got = read(left)
    assert got[:90] == stored(shots[:90])
    assert got[90:] == stored(shots[90:])
    with Recording(left) as recording:
        assert [run.ended is None for run in recording.sessions] == [True, False]
        lives = recording.processes()
        assert {one.first for one in lives} == {shots[0].taken_at.timestamp()}, "lives go on"
        points = recording.summaries(60, 0, START * 2, frozenset({"power.draw_watts"}))
        assert sum(one.samples for found in points.values() for one in found.values()) == 2 * 100
    assert not check_recording(left).damaged


@pytest.mark.parametrize("hours", [-1.0, 1.0])
def test_a_clock_that_is_set(file: Path, hours: float) -> None:
    before = list(day(1, 1, 130))
    clock = FakeClock()
    writer = record(file, before, clock, max_age=2 * HOUR)
    clock.go(1.0)
    clock.wall += hours * HOUR
    after = list(day(1, 1, 130, begin=NOON + (before[-1].taken_at - NOON) + (hours * HOUR + 1) * SECOND, seed=2))
    for shot in after:
        clock.boot += shot.taken_at.timestamp() - clock.wall
        clock.monotonic += shot.taken_at.timestamp() - clock.wall
        clock.wall = shot.taken_at.timestamp()
        writer.add(shot)
    writer.close()
    with Recording(file) as recording:
        (event,) = (one for one in recording.events() if one.kind == "clock.set")
        assert event.text == f"the clock was set {'back' if hours < 0 else 'forward'} by 60 min"
        times = list(recording.times)
        assert times == sorted(times)
        assert [kept.at for kept in recording.snapshots()] == times
        last = recording.at(times[-1])
        assert last is not None
        assert last.snapshot == stored(after)[-1]
        if hours > 0:
            assert (recording.samples, recording.hidden_samples) == (260, 0)
        else:  # what is later than the clock now stays; its own hour was not recorded twice
            assert recording.samples + recording.hidden_samples == 260
    assert not check_recording(file).damaged


def test_a_time_that_comes_twice_is_shown_once(file: Path) -> None:
    clock = FakeClock()
    writer = record(file, list(day(1, 0, 300)), clock)
    clock.wall -= 200
    again = list(day(1, 0, 400, begin=NOON + 99.99 * SECOND, seed=5))
    for shot in again:
        clock.boot, clock.wall = clock.boot + shot.taken_at.timestamp() - clock.wall, shot.taken_at.timestamp()
        clock.monotonic = clock.boot - 100
        writer.add(shot)
    writer.close()
    with Recording(file) as recording:
        assert recording.samples == 100 + 400
        assert recording.hidden_samples == 200
        assert [kept.at for kept in recording.snapshots(START + 95, START + 105)] == [
            at for at in recording.times if START + 95 <= at <= START + 105
        ]
        kept = recording.at(START + 150.3)
        assert kept is not None
        assert kept.snapshot == stored(again)[50]


def test_a_clock_set_forward_by_years_deletes_nothing(file: Path) -> None:
    clock = FakeClock()
    writer = record(file, list(day(1, 0, 130)), clock, max_age=300.0)
    clock.wall += 10 * 365 * 86_400
    later = NOON.replace(year=2036)
    clock.wall = later.timestamp()
    for shot in day(1, 0, 100, begin=later):
        clock.take(shot)
        writer.add(shot)
    writer.close()
    assert len(read(file)) == 230


def test_a_suspended_machine_leaves_a_gap_and_an_event(file: Path) -> None:
    clock = FakeClock()
    writer = record(file, list(day(1, 0, 30)), clock)
    clock.wall, clock.boot = clock.wall + 3 * HOUR, clock.boot + 3 * HOUR
    for shot in day(1, 0, 30, begin=NOON + (3 * HOUR + 30) * SECOND):
        clock.take(shot)
        writer.add(shot)
    writer.close()
    with Recording(file) as recording:
        assert [one.text for one in recording.events() if one.kind == "machine.resumed"] == [
            "the machine was suspended for 3 h 00 min"
        ]
        assert not [one for one in recording.events() if one.kind == "clock.set"]
        ((begin, end),) = recording.gaps(5.0)
        assert end - begin == pytest.approx(3 * HOUR + 1, abs=1)
    assert any("3 h" in line for line in check_lines(check_recording(file)))


def test_gpus_that_come_and_go(file: Path) -> None:
    whole = list(day(3, 6, 150))
    shots = []
    for number, shot in enumerate(whole):
        if 40 <= number < 80:
            gone = shot.devices[1].uuid
            shot = replace(
                shot,
                devices=(shot.devices[0], shot.devices[2]),
                processes=tuple(row for row in shot.processes if row.device_uuid != gone),
            )
        if number >= 110:
            shot = replace(shot, devices=(), processes=())
        shots.append(shot)
    record(file, shots, FakeClock()).close()
    assert read(file) == stored(shots)
    with Recording(file) as recording:
        history = recording.history(shots[-1].taken_at.timestamp(), 1000, frozenset({"power.draw_watts"}))
        series = list(history.series(whole[0].devices[1].uuid, "power.draw_watts"))
        assert [value is None for value in series] == [40 <= number < 80 or number >= 110 for number in range(150)]


def test_secrets_are_not_written(file: Path) -> None:
    shots = list(day(1, 2, 3))
    shots = [
        replace(shot, processes=(replace(shot.processes[0], command="python train.py --api-key hunter2hunter2"),))
        for shot in shots
    ]
    writer = RecordingWriter(file, clock=FakeClock().clock())
    for shot in shots:
        writer.add(shot, (replace(HOT, title="run with --api-key hunter2hunter2"),))
    assert b"hunter2" not in file.read_bytes() + Path(f"{file}-wal").read_bytes()
    writer.close()
    assert "--api-key" in (read(file)[0].processes[0].command or "")
    assert "hunter2" not in (read(file)[0].processes[0].command or "")


@pytest.mark.thorough
@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("samples"), st.integers(1, 40)),
            st.tuples(st.sampled_from(["set", "suspend"]), st.integers(-200, 200)),
            st.tuples(st.sampled_from(["kill", "close", "boot"]), st.just(0)),
        ),
        max_size=12,
    )
)
def test_whatever_happens_every_sample_is_there_once(happens: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file, clock, given_ = Path(folder) / "a.gpuwatch", FakeClock(), list[Snapshot]()
        writer = RecordingWriter(file, clock=clock.clock(), seal_seconds=10)
        first = machines.many(1, 1)
        for what, number in [*happens, ("samples", 5), ("close", 0)]:
            if what == "samples":
                for _ in range(number):
                    clock.go(1.0)
                    taken = datetime.datetime.fromtimestamp(clock.wall, datetime.UTC)
                    given_.append(replace(first, taken_at=taken, took_seconds=len(given_) / 1000))
                    writer.add(given_[-1])
            elif what == "set":
                clock.wall += number
            elif what == "suspend":
                clock.wall, clock.boot = clock.wall + abs(number), clock.boot + abs(number)
            else:
                if what == "kill":
                    writer._lock.close()  # as the kernel does; nothing is sealed or merged
                else:
                    writer.close()
                if what == "boot":
                    clock.boot, clock.monotonic, clock.machine = 5.0, 5.0, f"boot-{len(given_)}"
                writer = RecordingWriter(file, clock=clock.clock(), seal_seconds=10)
        writer.close()
        assert not check_recording(file).damaged
        with Recording(file) as recording:
            kept = list(recording.snapshots())
            times = list(recording.times)
            assert [one.at for one in kept] == times == sorted(times)
            assert recording.samples + recording.hidden_samples == len(given_)
            by_number = {shot.took_seconds: shot for shot in given_}
            assert all(one.snapshot == by_number[one.snapshot.took_seconds] for one in kept)
            assert kept[-1].snapshot == max(given_, key=lambda shot: shot.taken_at) or recording.hidden_samples
            for one in kept[:: max(len(kept) // 5, 1)]:
                found = recording.at(one.at)
                assert found is not None
                assert found.snapshot.taken_at == one.snapshot.taken_at


# Limits


def test_the_oldest_samples_go_when_the_file_is_full(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 500_000
    monkeypatch.setattr("gpuwatch.machine.recording.recording_defaults.MIN_BYTES", most)
    clock, largest = FakeClock(), 0
    writer = RecordingWriter(file, clock=clock.clock(), max_bytes=most, seal_seconds=2)
    writer._db.execute("PRAGMA synchronous = OFF")  # so small a log is merged every few samples
    shots = list(day(2, 20, 400))
    for shot in shots:
        clock.take(shot)
        writer.add(shot)
        largest = max(largest, writer.size_bytes)
    writer.close()
    assert most / 2 < largest <= most
    got = read(file)
    assert 50 < len(got) < 350
    assert got == stored(shots)[-len(got) :], "the newest, without holes"
    with Recording(file) as recording:
        points = recording.summaries(60, 0, START * 2, frozenset({"power.draw_watts"}))
        assert min(points) <= START, "means stay longer"
    assert not check_recording(file).damaged


def test_old_samples_go_and_their_means_stay(file: Path) -> None:
    shots = list(day(1, 1, 1200))
    record(file, shots, FakeClock(), max_age=300.0).close()
    with Recording(file) as recording:
        assert recording.begin is not None
        assert recording.end is not None
        assert 300 <= recording.end - recording.begin <= 420
        assert min(recording.summaries(60, 0, START * 2, frozenset({"power.draw_watts"}))) <= START
        assert [one.kind for one in recording.events()] == ["recording.ended"]


# Who writes


def test_one_writer_at_a_time(file: Path) -> None:
    writer = record(file, list(day(1, 0, 3)), FakeClock())
    with pytest.raises(UsageError, match="another gpuwatch records to"):
        RecordingWriter(file)
    writer.close()
    RecordingWriter(file).close()


def test_the_file_is_private_and_keeps_a_mode_that_the_admin_gave_it(file: Path) -> None:
    old = os.umask(0)
    try:
        RecordingWriter(file).close()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        file.chmod(0o640)
        writer = record(file, list(day(1, 0, 3)), FakeClock())
        modes = {stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}
        assert modes == {0o640}, "the log too, or nobody could read"
        writer.close()
    finally:
        os.umask(old)


@pytest.mark.parametrize("what", ["link", "folder", "text", "newer", "writable", "open folder"])
def test_files_that_cannot_be_recorded_to(file: Path, what: str) -> None:
    if what == "link":
        file.symlink_to(file.parent / "elsewhere")
    elif what == "folder":
        file.mkdir()
    elif what == "text":
        file.write_text("a text that somebody wants to keep" * 10)
        file.chmod(0o600)
    elif what == "newer":
        RecordingWriter(file).close()
        with sqlite3.connect(file) as db:
            db.execute("PRAGMA user_version = 99")
        db.close()
    elif what == "writable":
        file.touch()
        file.chmod(0o666)
    else:
        file.parent.chmod(0o777)
    before = file.read_bytes() if file.is_file() else b""
    with pytest.raises(GpuwatchError) as refused:
        RecordingWriter(file)
    assert file.name in refused.value.message or str(file.parent) in refused.value.message
    assert refused.value.hint
    assert not file.is_file() or file.read_bytes() == before


def test_a_full_disk_ends_the_recording_and_leaves_it_readable(file: Path) -> None:
    shots = list(day(8, 50, 300))
    clock = FakeClock()
    writer = RecordingWriter(file, clock=clock.clock())
    pages = writer._pragma_number("page_count")
    writer._db.execute(f"PRAGMA max_page_count = {pages + 20}").fetchone()  # SQLite reports a full disk beyond it

    def write_all() -> None:
        for shot in shots:
            clock.take(shot)
            writer.add(shot)

    with pytest.raises(RecordingStopped, match="the disk is full"):
        write_all()
    assert 10 < writer.samples < len(shots)
    assert read(file) == stored(shots[: writer.samples])
    writer.close()  # already closed: nothing happens
    assert not check_recording(file).damaged


# Damage


def test_damaged_blocks_are_left_out_and_reported(file: Path) -> None:
    shots = list(day(1, 4, 240))
    record(file, shots, FakeClock()).close()
    with sqlite3.connect(file) as db:
        db.execute("UPDATE data SET block = substr(block, 1, 100) WHERE id = 2")
        db.execute("UPDATE events SET event = x'c1' WHERE id <= 2")
        db.execute("UPDATE processes SET life = x'c1'")
    db.close()
    report = check_recording(file)
    assert len(report.damaged) == 7
    assert any(line.startswith("damaged: block 2,") for line in check_lines(report))
    with Recording(file) as recording:
        got = [kept.snapshot for kept in recording.snapshots()]
        assert len(got) < 240
        assert set(recording.damage.blocks) == {2}
        times = list(recording.times)
        assert recording.at(times[90]) is not None, "the nearest before"
        assert (list(recording.events()), recording.processes()) == ([], [])
        lost = recording.damage.blocks[2]
        when = f"from {time_text(lost.begin)} to {time_text(lost.end)}"
        missing = f"{lost.samples} of 240 samples {when}, 2 events, 4 processes cannot be read"
        assert recording.damage.text(240) == missing


@pytest.mark.parametrize("damage", ["x'c1'", "'text'", "x''", "7", "zeroblob(50)", "randomblob(50)"])
def test_a_reader_goes_on_beside_damaged_rows(file: Path, damage: str) -> None:
    record(file, list(day(1, 2, 240)), FakeClock()).close()
    with sqlite3.connect(file) as db:
        for table, column in (
            ("minutes", "times"),
            ("data", "block"),
            ("tiers", "block"),
            ("events", "event"),
            ("findings", "finding"),
            ("processes", "life"),
        ):
            db.execute(f"UPDATE {table} SET {column} = {damage} WHERE rowid = 2" if table in ("minutes", "data")
                       else f"UPDATE {table} SET {column} = {damage}")  # fmt: skip
    db.close()
    with Recording(file) as recording:
        assert recording.samples == len(list(recording.times)) == 240
        assert 150 < len(list(recording.snapshots())) < 240
        assert recording.at(START + 60) is not None
        recording.history(START + 240, 240, frozenset({"power.draw_watts"}))
        assert recording.summaries(60, 0, START * 2, frozenset({"power.draw_watts"})) == {}
        assert (list(recording.events()), recording.findings(), recording.processes()) == ([], [], [])
    report = check_recording(file)
    assert len(report.damaged) >= 4
    assert not any("b'" in line for line in report.damaged), "rows by their keys, without their data"
    with Recording(file) as recording:
        assert list(info_lines(recording_info(recording)))
    record(file, list(day(1, 2, 300))[240:], FakeClock()).close()
    with Recording(file) as recording:
        assert recording.samples == 300, "a recorder goes on, too"


DEEP = b"\x81\xa1?" + b"\x91" * 50_000 + b"\xc0"
"""A member that nobody knows, nested so deeply that a decoder gives up."""


@pytest.mark.parametrize(
    "read",
    [
        lambda: gpu_time_and_energy.unpack_gpu_time(zlib.compress(DEEP)),
        lambda: minute_and_hour_means.unpack_points(zlib.compress(DEEP)),
        lambda: event_of((1.0, with_checksum(DEEP, 1.0))),
        lambda: finding_of((1.0, 2.0, with_checksum(DEEP, 1.0, 2.0))),
        lambda: life_of((1.0, 2.0, with_checksum(DEEP, 1.0, 2.0))),
        lambda: list(FrameDecoder().read(framed(KEY, DEEP))),
        lambda: list(FrameDecoder().read(framed(FINDINGS, b"\x91" + DEEP))),
    ],
)
def test_what_is_nested_too_deeply_is_damage(read: Callable[[], object]) -> None:
    with pytest.raises(DamagedData):
        read()


def test_files_that_are_no_recordings(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("hello")
    with pytest.raises(UsageError, match="is not a recording"):
        Recording(text)
    with pytest.raises(UsageError, match="cannot read"):
        Recording(tmp_path / "missing")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE mine (one)")
    db.close()
    with pytest.raises(UsageError, match="is not a recording"):
        Recording(other)


# Following


def test_a_reader_follows_a_writer(file: Path) -> None:
    clock = FakeClock()
    shots = list(day(1, 1, 150))
    writer = record(file, shots[:10], clock)
    with Recording(file) as recording:
        for number, shot in enumerate(shots[10:], 11):
            assert not recording.refresh()
            clock.take(shot)
            writer.add(shot)
            assert recording.refresh()
            assert recording.samples == number
            assert recording.end == shot.taken_at.timestamp()
        assert [kept.snapshot for kept in recording.snapshots()] == stored(shots)
        writer.close()


# Cuts


def test_a_cut_has_the_samples_of_its_time(file: Path, tmp_path: Path) -> None:
    shots = list(day(2, 4, 400))
    record(file, shots, FakeClock()).close()
    out = tmp_path / "cut.gpuwatch"
    with Recording(file) as recording:
        begin, end = START + 100, START + 250.5
        count = cut_out(recording, begin, end, out)
        wanted = [kept for kept in recording.snapshots() if begin <= kept.at <= end]
        assert count == len(wanted) == 151
    with Recording(out) as cut:
        assert list(cut.snapshots()) == wanted
        assert {(one.first, one.last) for one in cut.processes()} == {(wanted[0].at, wanted[-1].at)}
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert not check_recording(out).damaged
    with Recording(file) as recording, pytest.raises(UsageError, match="exists"):
        cut_out(recording, begin, end, out)


def test_a_redacted_cut_names_nobody(file: Path, tmp_path: Path) -> None:
    shots = [
        replace(
            shot,
            host=replace(shot.host, hostname="secret-host"),
            processes=tuple(replace(row, command=f"python /home/{row.user}/x.py") for row in shot.processes),
        )
        for shot in day(2, 4, 100)
    ]
    clock = FakeClock()
    writer = RecordingWriter(file, clock=clock.clock(), hostname="secret-host")
    for place, shot in enumerate(shots):
        clock.take(shot)
        writer.add(shot, (replace(HOT, title=f"python of user=zelda{place // 50} on secret-host"),))
    writer.add_events([MachineEvent(at=clock.wall, kind="xid", text="Accepted publickey for quinn from 10.2.3.4")])
    writer.close()
    out = tmp_path / "cut.gpuwatch"
    with Recording(file) as recording:
        cut_out(recording, 0, START * 2, out, redact=True)
    with Recording(out) as cut:
        text = repr(list(cut.snapshots())) + repr([*cut.events(), *cut.findings(), *cut.processes(), *cut.sessions])
        snapshot = next(iter(cut.snapshots())).snapshot
        assert len({kept.findings[0].title for kept in cut.snapshots()}) == 2
        assert "redacted" in cut.notes
    for name in (
        "alice",
        "bob",
        "carol",
        "secret-host",
        "zelda",
        "quinn",
        *(device.uuid for device in shots[0].devices),
    ):
        assert name not in text
    assert {row.device_uuid for row in snapshot.processes} == {device.uuid for device in snapshot.devices}
    assert [row.readings for row in snapshot.processes] == [row.readings for row in stored(shots)[0].processes]
