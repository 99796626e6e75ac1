"""Following a file that grows: every sample once, in order, whenever one looks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.recording import newest_samples
from gpuwatch.machine.recording.newest_samples import NewestSamples
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.storable_snapshots import StorableSnapshots
from tests.recording.days import day
from tests.recording.recordings import Growing


def test_nothing_is_there_yet(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "a.gpuwatch")
    following = NewestSamples(growing.path)
    assert following.take() == []
    shots = list(day(1, 1, 2))
    growing.add(*shots)
    stored = StorableSnapshots()
    assert following.take() == [stored.of(one) for one in shots][1:], "of the first ones the newest"
    assert following.take() == []
    following.close()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6))
def test_each_sample_comes_once_however_often_one_looks(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    growing = Growing(tmp_path / "a.gpuwatch", seal_seconds=10.0)
    shots = list(day(2, 6, 300))
    stored = StorableSnapshots()
    expected = [stored.of(one) for one in shots]
    growing.add(*shots[:25])
    following, found, written = NewestSamples(growing.path), list[Snapshot](), 25
    while written < len(shots):
        found += following.take()
        more = chance.choice((1, 1, 1, 2, 9, 10, 11, 17))
        growing.add(*shots[written : written + more])
        written += more
    found += following.take()
    assert found == expected[24:]
    following.close()


def test_after_a_long_stop_only_the_last_minutes_come(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "a.gpuwatch", seal_seconds=10.0)
    shots = list(day(1, 1, 200))
    growing.add(*shots[:5])
    following = NewestSamples(growing.path)
    following.take()
    growing.add(*shots[5:])
    times = [one.taken_at for one in following.take()]
    wanted = [one.taken_at for one in shots]
    assert times == wanted[-len(times) :]
    assert 10 * newest_samples._MAX_BLOCKS <= len(times) <= 10 * newest_samples._MAX_BLOCKS + 10


def test_a_recorder_that_was_killed_and_another_one(tmp_path: Path) -> None:
    """The next recorder seals what the first one left open."""
    shots = list(day(1, 2, 30))
    growing = Growing(tmp_path / "a.gpuwatch")
    growing.add(*shots[:10])
    following = NewestSamples(growing.path)
    assert [one.taken_at for one in following.take()] == [shots[9].taken_at]
    growing.add(*shots[10:12])
    growing.writer._lock.close()  # as its end does
    again = Growing(growing.path)
    again.add(*shots[12:])
    assert [one.taken_at for one in following.take()] == [one.taken_at for one in shots[10:]]


def test_a_file_that_was_read_until_its_recorder_ended_is_whole_by_itself(tmp_path: Path) -> None:
    """The log beside it cannot be removed while somebody reads, but the file has all of it."""
    growing = Growing(tmp_path / "a.gpuwatch")
    shots = list(day(2, 6, 90))
    growing.add(*shots[:80])
    following = NewestSamples(growing.path)
    following.take()
    with Recording(growing.path) as recording:
        growing.add(*shots[80:])
        growing.end()
        assert len(following.take()) == 10
        recording.refresh()
        assert recording.samples == 90
        copy = tmp_path / "copy.gpuwatch"
        copy.write_bytes(growing.path.read_bytes())
        with Recording(copy) as copied:
            assert copied.samples == 90
            assert copied.sessions[-1].ended is not None
    following.close()
    Growing(growing.path).end()
    assert {one.name for one in tmp_path.glob("a.*")} == {"a.gpuwatch"}
