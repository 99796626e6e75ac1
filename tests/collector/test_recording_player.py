"""The feed that plays a recording: its pace, jumps, gaps, ends, and a file that grows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.machine.collector.recording_player import RecordingPlayer
from gpuwatch.machine.history.sample_gaps import Gap
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.storable_snapshots import StorableSnapshots
from tests.recording.days import day
from tests.recording.recordings import BEGIN, Growing, recorded, with_gap


class Played:
    """A feed with a clock that a test moves."""

    def __init__(self, path: Path, *, speed: float = 1.0) -> None:
        self.seconds = 100.0
        self.feed = RecordingPlayer(Recording(path), speed=speed, clock=lambda: self.seconds)
        self.times: list[float] = []
        self.feed.paused = False
        self.pass_(0)

    def pass_(self, seconds: float) -> None:
        self.seconds += seconds
        self.times += [round(kept.at - BEGIN) for kept in self.feed.take()]


@pytest.fixture
def play() -> Iterator[Callable[..., Played]]:
    running: list[Played] = []

    def start(path: Path, **options: float) -> Played:
        running.append(Played(path, **options))
        return running[-1]

    yield start
    for one in running:
        one.feed.stop()


@pytest.fixture
def minute(tmp_path: Path) -> Path:
    return recorded(tmp_path / "minute.gpuwatch", day(1, 2, 60))


def test_plays_at_the_recorded_pace(minute: Path, play: Callable[..., Played]) -> None:
    one = play(minute)
    assert one.times == [0]
    for second in range(1, 6):
        one.pass_(1.01)
        assert one.times == list(range(second + 1))
    assert one.feed.now() - BEGIN == pytest.approx(5.05, abs=0.05)
    one.pass_(30)  # as after a suspend: it goes on where it was
    assert one.times == list(range(7))


@pytest.mark.parametrize(("speed", "samples"), [(0.25, 1), (8, 41), (64, 60)])
def test_speed(minute: Path, play: Callable[..., Played], speed: float, samples: int) -> None:
    """Samples in the first five seconds, and a bit for the noise of their times."""
    one = play(minute, speed=speed)
    assert len(one.times) == 1
    for _ in range(10):
        one.pass_(0.501)
    assert len(one.times) == pytest.approx(samples + (speed == 0.25), abs=1)


def test_a_pause_holds_the_moment(minute: Path, play: Callable[..., Played]) -> None:
    one = play(minute)
    one.pass_(0.5)
    one.feed.paused = True
    moment = one.feed.now()
    one.pass_(30)
    assert one.times == [0]
    assert one.feed.now() == moment
    one.feed.paused = False
    one.pass_(0)
    assert one.times == [0]
    one.pass_(0.6)
    assert one.times == [0, 1]


def test_a_jump_goes_on_from_there(minute: Path, play: Callable[..., Played]) -> None:
    one = play(minute)
    one.feed.seek(BEGIN + 30.5, BEGIN + 30.5)
    assert one.feed.now() == BEGIN + 30.5
    one.pass_(0.6)
    assert one.times == [0, 31]
    one.feed.seek(BEGIN + 9.5, BEGIN + 9.5)
    one.pass_(0.6)
    assert one.times == [0, 31, 10]


def test_a_gap_is_passed_over_and_told(tmp_path: Path, play: Callable[..., Played]) -> None:
    shots = with_gap(20, at=10)
    one = play(recorded(tmp_path / "gap.gpuwatch", shots))
    for _ in range(9):
        one.pass_(1.01)
    assert one.times == [*range(10), 3610]
    assert one.feed.take_gaps() == [Gap(shots[9].taken_at.timestamp(), shots[10].taken_at.timestamp(), False)]
    assert one.feed.take_gaps() == []
    one.pass_(1.01)
    assert one.times[-1] == 3611
    assert one.feed.now() == pytest.approx(BEGIN + 3611, abs=0.1)


def test_the_end_is_the_last_sample(minute: Path, play: Callable[..., Played]) -> None:
    one = play(minute)
    one.feed.seek(BEGIN + 57.5, BEGIN + 57.5)
    for _ in range(5):
        one.pass_(1.01)
    assert one.feed.ended
    assert one.times[-2:] == [58, 59]
    one.pass_(100)
    assert one.feed.now() == pytest.approx(BEGIN + 59, abs=0.1)


def test_a_file_that_grows_is_followed(tmp_path: Path, play: Callable[..., Played]) -> None:
    """Also over the sealing of a block, which moves the samples to another table."""
    growing = Growing(tmp_path / "growing.gpuwatch", seal_seconds=5.0)
    shots = list(day(1, 2, 20))
    growing.add(*shots[:3])
    one = play(growing.path, speed=64)
    one.pass_(1)
    assert one.times == [0, 1, 2]
    assert one.feed.ended
    for place in range(3, 10):
        growing.add(shots[place])
        one.pass_(0)  # at its end a sample is due when it is there
        assert one.times[-1] == place
    one.feed.speed = 1.0
    growing.add(*shots[10:14])
    one.feed.seek(BEGIN + 2.5, BEGIN + 2.5)
    one.pass_(0.6)
    growing.add(*shots[14:])  # while it plays an earlier block; the open samples of then are in a block
    one.feed.recording.refresh()  # as a session does
    for _ in range(19):
        one.pass_(0.9)
    assert one.times == [*range(10), *range(3, 20)]
    assert one.feed.take_gaps() == []
    growing.end()


def test_wakes_when_a_sample_is_due(minute: Path) -> None:
    feed = RecordingPlayer(Recording(minute), speed=8)
    arrived = threading.Event()
    feed.start(arrived.set)
    feed.paused = False
    got = 0
    while got < 3:
        assert arrived.wait(30)
        arrived.clear()
        got += len(feed.take())
    feed.stop()


def test_samples_are_those_recorded(tmp_path: Path, play: Callable[..., Played]) -> None:
    shots = list(day(2, 4, 30))
    seconds = iter(range(1000))
    recording = Recording(recorded(tmp_path / "a.gpuwatch", shots))
    feed = RecordingPlayer(recording, speed=64, clock=lambda: next(seconds) / 4)
    feed.paused = False
    got = []
    while not feed.ended:
        got += [kept.snapshot for kept in feed.take()]
    feed.stop()
    assert got == [StorableSnapshots().of(shot) for shot in shots]


def test_nothing_is_read_from_this_machine(minute: Path) -> None:
    feed = RecordingPlayer(Recording(minute))
    assert feed.host.name == "node07"
    assert "recording" in feed.host.details(1, None).problem
    assert feed.host.signal(1, None, 15).state == "denied"
    assert feed.host.device_numbers(1) == ()
    feed.stop()
