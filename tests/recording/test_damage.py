"""Damage anywhere in a file: what is left is read, every command says what is missing, nothing is lost silently."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import sqlite3
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.recording_player import RecordingPlayer
from gpuwatch.machine.history.sample_gaps import Gap, gap_limit
from gpuwatch.machine.recording.reader import Recording
from tests.conftest import gpuwatch
from tests.recording.days import day
from tests.recording.recordings import Growing, recorded, troubled

SAMPLES = 360
PAGE = 4096
Damage = Callable[[bytearray, random.Random], None]


def bits(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 8))):
        data[chance.randrange(PAGE, len(data))] ^= 1 << chance.randrange(8)


def zeros(data: bytearray, chance: random.Random) -> None:
    place = chance.randrange(1, len(data) // PAGE) * PAGE
    data[place : place + PAGE] = bytes(PAGE)


def header(data: bytearray, chance: random.Random) -> None:
    place = chance.choice((0, 16, 28, 52, 68, 100, 108))
    size = chance.choice((4, PAGE)) if place == 0 else 4
    data[place : place + size] = bytes(size) if chance.random() < 0.5 else chance.randbytes(size)


def truncation(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(PAGE * 4, len(data)) :]


KINDS: tuple[Damage, ...] = (bits, zeros, header, truncation)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = recorded(tmp_path_factory.mktemp("damage") / "whole.gpuwatch", troubled(SAMPLES), seal_seconds=10.0)
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA page_size").fetchone()[0] == PAGE
    return path


def samples_of(path: Path, *, replay: bool = False) -> tuple[int, bool]:
    """Samples that the reader gives, and whether it noticed damage; ``replay``: it plays them too."""
    with Recording(path) as recording:
        found = [kept.at for kept in recording.snapshots()]
        assert found == sorted(set(found))
        if replay:
            played, skipped = replayed(path)
            assert played == found
            holes = {(last, at) for last, at in pairwise(found) if at - last > gap_limit(1.0)}
            assert holes <= {(gap.begin, gap.end) for gap in skipped}
        return len(found), bool(recording.damage)


def replayed(path: Path) -> tuple[list[float], list[Gap]]:
    """The times that a replay plays, and the gaps that it passes over."""
    seconds = count()
    feed = RecordingPlayer(Recording(path), speed=64.0, clock=lambda: 0.3 * next(seconds))
    feed.paused = False
    played = []
    while not feed.ended:
        played += [kept.at for kept in feed.take()]
    feed.stop()
    return played, feed.take_gaps()


def check_commands(path: Path, folder: Path) -> tuple[int, str]:
    """Runs every command that reads a recording; the samples that were exported, and what export said on stderr."""
    cut = folder / "cut.gpuwatch"
    cut.unlink(missing_ok=True)
    told = (
        r"is damaged: .*(record check|no sample)|(none of its samples|no sample) can be read|is not a recording|"
        "another version of gpuwatch"
    )
    exported, stated = 0, ""
    for command in (
        ("export", str(path), "--format", "csv"),
        ("record", "info", str(path)),
        ("usage", str(path), "--json"),
        ("report", str(path), "--json"),
        ("record", "cut", str(path), "-o", str(cut)),
        ("record", "check", str(path)),
    ):
        done = gpuwatch(*command)
        assert "Traceback" not in done.err + done.out, (command, done.err)
        assert done.code in (0, 1, 2), (command, done)
        if command[0] == "export":
            rows = list(csv.DictReader(io.StringIO(done.out)))
            exported, stated = len({row["time"] for row in rows}), done.err
            if exported < SAMPLES:
                assert done.code, command
                assert re.search(told, done.err), done.err
        elif command[:2] == ("record", "cut") and done.code < 2 and exported:
            assert int(re.search(r"wrote ([\d,]+) samples", done.err)[1].replace(",", "")) == exported  # type: ignore[index]
        elif command[0] == "usage" and done.code < 2 and exported and not done.code:
            assert json.loads(done.out)["hours_recorded"] == pytest.approx((SAMPLES - 1) / 3600, rel=0.05)
        if done.code and command[:2] != ("record", "check"):
            assert re.search(told, done.err), (command, done.err)
            assert len(done.err.splitlines()) <= 2, done.err
    return exported, stated


def damaged(whole: Path, folder: Path, kind: Damage, seed: int) -> Path:
    data = bytearray(whole.read_bytes())
    kind(data, random.Random(seed))
    path = folder / "damaged.gpuwatch"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_command_loses_anything_silently(whole: Path, tmp_path: Path, kind: Damage) -> None:
    for seed in range(2):
        check_commands(damaged(whole, tmp_path, kind, seed), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_fifty_damages_of_each_kind(whole: Path, tmp_path: Path, kind: Damage) -> None:
    left = []
    for seed in range(50):
        left.append(check_commands(damaged(whole, tmp_path, kind, seed), tmp_path)[0])
    print(f"{kind.__name__}: samples left {sorted(left)}")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_is_left_is_read(whole: Path, tmp_path: Path, kind: Damage) -> None:
    """A page holds at most a few blocks, and a block ten samples; before a cut, everything."""
    raw = whole.read_bytes()
    with sqlite3.connect(whole) as db:
        blocks = db.execute("SELECT block, samples FROM data JOIN minutes USING (id)").fetchall()
    ends = [(max(raw.find(block[:40]), raw.find(block[-40:])) // PAGE + 1, samples) for block, samples in blocks]
    for seed in range(40):
        path = damaged(whole, tmp_path, kind, seed)
        found, noticed = samples_of(path, replay=True)
        pages = path.stat().st_size // PAGE
        least = {bits: SAMPLES - 80, zeros: SAMPLES - 100, header: SAMPLES}
        before = sum(samples for end, samples in ends if end <= pages)
        assert found >= least.get(kind, before), (seed, found, pages)
        assert noticed or found == SAMPLES, (seed, found)


@pytest.mark.thorough
def test_a_lost_page_of_any_place_is_noticed(whole: Path, tmp_path: Path) -> None:
    data = whole.read_bytes()
    path = tmp_path / "damaged.gpuwatch"
    for place in range(PAGE, len(data), PAGE):
        path.write_bytes(data[:place] + bytes(PAGE) + data[place + PAGE :])
        found, noticed = samples_of(path)
        assert noticed or found == SAMPLES, place // PAGE
        assert found >= SAMPLES - 100, place // PAGE


def test_rows_that_a_page_no_longer_counts(whole: Path, tmp_path: Path) -> None:
    """SQLite does not see them any more; the other table has their numbers."""
    data = whole.read_bytes()
    path = tmp_path / "damaged.gpuwatch"
    for place in range(PAGE, len(data), PAGE):
        count = int.from_bytes(data[place + 3 : place + 5], "big")
        if data[place] == 0x0D and 1 < count < 500:
            path.write_bytes(data[: place + 3] + (count - 1).to_bytes(2, "big") + data[place + 5 :])
            found, noticed = samples_of(path)
            assert noticed or found == SAMPLES, place // PAGE
            assert found >= SAMPLES - 10, place // PAGE


def with_long_pids(shot: Snapshot) -> Snapshot:
    return replace(shot, processes=tuple(replace(row, pid=row.pid + 70_000) for row in shot.processes))


@pytest.mark.parametrize("lost", [0, 16])
def test_a_file_of_a_killed_recorder(tmp_path: Path, lost: int) -> None:
    """What it left in the write-ahead log is part of it, also where the file's header is lost; blocks fill pages."""
    growing = Growing(tmp_path / "a.gpuwatch", seal_seconds=30.0)
    growing.add(*(with_long_pids(shot) for shot in day(4, 60, 65)))
    copy = tmp_path / "copy.gpuwatch"
    raw = growing.path.read_bytes()
    copy.write_bytes(bytes(lost) + raw[lost:])
    copy.with_name("copy.gpuwatch-wal").write_bytes(growing.path.with_name("a.gpuwatch-wal").read_bytes())
    with Recording(copy) as recording, Recording(growing.path) as whole:
        assert list(recording.snapshots()) == list(whole.snapshots())
        assert len(recording.times) == 65
        assert recording.processes() == whole.processes()
        assert len(whole.processes()) == 60
        assert list(recording.events()) == list(whole.events())
        assert bool(recording.damage) == bool(lost)
    growing.end()


def test_a_cut_before_the_first_sample_leaves_tables_only(whole: Path, tmp_path: Path) -> None:
    """The limit of the format: 13 pages come before what is recorded. A report does not call that healthy."""
    path = tmp_path / "damaged.gpuwatch"
    path.write_bytes(whole.read_bytes()[: 13 * PAGE])
    assert samples_of(path) == (0, True)
    with Recording(path) as recording:
        assert recording.damage.database == f"the file ends after 13 of {whole.stat().st_size // PAGE} pages"
    path.write_bytes(whole.read_bytes()[: 9 * PAGE])  # findings are lost, too
    done = gpuwatch("report", str(path))
    assert done.code == 1
    assert "○ unknown: No sample of this time can be read." in done.out.splitlines()
    path.write_bytes(whole.read_bytes()[: 14 * PAGE])
    assert samples_of(path) == (10, True)


def test_a_replay_plays_what_is_left(whole: Path, tmp_path: Path) -> None:
    data = bytearray(whole.read_bytes())
    with sqlite3.connect(whole) as db:
        (block,) = db.execute("SELECT block FROM data WHERE id = 9").fetchone()
    place = data.find(block[:60])
    data[place : place + 60] = bytes(60)
    path = tmp_path / "damaged.gpuwatch"
    path.write_bytes(data)
    assert samples_of(path) == (SAMPLES - 10, True)
    assert [gap.damaged for gap in replayed(path)[1]] == [True]
