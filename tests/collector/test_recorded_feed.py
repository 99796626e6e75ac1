"""The feed that plays a recording: its pace, jumps, gaps, ends, and a file that grows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.machine.collector.recorded_feed import RecordedFeed, Skipped
from gpuwatch.machine.recording.storable import Storable
from tests.recording.days import day
from tests.recording.recordings import BEGIN, Growing, recorded, with_gap


class Played:
    """A feed with a clock that a test moves."""

    def __init__(self, path: Path, *, speed: float = 1.0) -> None:
        self.seconds = 100.0
        self.feed = RecordedFeed(path, speed=speed, clock=lambda: self.seconds)
        self.times: list[float] = []
        self.woken = threading.Event()
        self.feed.start(self.woken.set)
        self.feed.paused = False

    def until(self, true: Callable[[], bool]) -> None:
        """Takes what comes until something is true."""
        deadline = time.monotonic() + 10
        while not true() and time.monotonic() < deadline:
            self.woken.wait(0.05)
            self.woken.clear()
            self.times += [round(kept.at - BEGIN) for kept in self.feed.take()]
        assert true(), self.times

    def settle(self) -> None:
        """Gives the feed the time to deliver what it should not."""
        time.sleep(0.1)
        self.times += [round(kept.at - BEGIN) for kept in self.feed.take()]

    def pass_(self, seconds: float) -> None:
        self.seconds += seconds
        with self.feed._turn:
            self.feed._turn.notify()  # its waits are of real seconds


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[..., Played]]:
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
    one.until(lambda: one.times == [0])
    one.settle()
    assert one.times == [0]
    for second in range(1, 6):
        one.pass_(1.01)
        one.until(lambda second=second: one.times == list(range(second + 1)))  # type: ignore[misc]
    assert one.feed.now() - BEGIN == pytest.approx(5.05, abs=0.05)


@pytest.mark.parametrize(("speed", "samples"), [(0.25, 1), (8, 41), (64, 60)])
def test_speed(minute: Path, play: Callable[..., Played], speed: float, samples: int) -> None:
    """Samples in the first five seconds, and a bit for the noise of their times."""
    one = play(minute, speed=speed)
    one.until(lambda: len(one.times) == 1)
    for _ in range(10):
        one.pass_(0.501)
        one.settle()
    assert len(one.times) == pytest.approx(samples + (speed == 0.25), abs=1)


def test_a_pause_holds_the_moment(minute: Path, play: Callable[..., Played]) -> None:
    one = play(minute)
    one.until(lambda: one.times == [0])
    one.pass_(0.5)
    one.feed.paused = True
    moment = one.feed.now()
    one.pass_(30)
    one.settle()
    assert one.times == [0]
    assert one.feed.now() == moment
    one.feed.paused = False
    one.settle()
    assert one.times == [0]
    one.pass_(0.6)
    one.until(lambda: one.times == [0, 1])


def test_a_jump_goes_on_from_there(minute: Path, play: Callable[..., Played]) -> None:
    one = play(minute)
    one.until(lambda: one.times == [0])
    one.feed.seek(BEGIN + 30.5, BEGIN + 30.5)
    assert one.feed.now() == BEGIN + 30.5
    one.pass_(0.6)
    one.until(lambda: one.times == [0, 31])
    one.feed.seek(BEGIN + 9.5, BEGIN + 9.5)
    one.pass_(0.6)
    one.until(lambda: one.times == [0, 31, 10])


def test_samples_from_before_a_jump_are_dropped(minute: Path, play: Callable[..., Played]) -> None:
    one = play(minute)
    one.woken.wait(5)
    one.feed.seek(BEGIN + 30.5, BEGIN + 30.5)
    assert one.feed.take() == []


def test_a_gap_is_passed_over_and_told(tmp_path: Path, play: Callable[..., Played]) -> None:
    shots = with_gap(20, at=10)
    one = play(recorded(tmp_path / "gap.gpuwatch", shots))
    for place in range(10):
        one.until(lambda place=place: len(one.times) > place)  # type: ignore[misc]
        one.pass_(1.01)
    assert one.times[9:11] == [9, 3610]
    assert one.feed.take_skipped() == [Skipped(shots[9].taken_at.timestamp(), shots[10].taken_at.timestamp(), False)]
    assert one.feed.take_skipped() == []
    assert one.feed.now() == pytest.approx(BEGIN + 3611, abs=0.1)


def test_the_end_is_the_last_sample(minute: Path, play: Callable[..., Played]) -> None:
    one = play(minute)
    one.feed.seek(BEGIN + 57.5, BEGIN + 57.5)
    for _ in range(5):
        one.pass_(1.01)
        one.settle()
    one.until(lambda: one.feed.ended)
    assert one.times[-2:] == [58, 59]
    one.pass_(100)
    assert one.feed.now() == pytest.approx(BEGIN + 59, abs=0.1)


def test_a_file_that_grows_is_followed(tmp_path: Path, play: Callable[..., Played]) -> None:
    """Also over the sealing of a block, which moves the samples to another table."""
    growing = Growing(tmp_path / "growing.gpuwatch", seal_seconds=5.0)
    shots = list(day(1, 2, 20))
    growing.add(*shots[:3])
    one = play(growing.path, speed=64)
    one.until(lambda: bool(one.times))
    one.pass_(1)
    one.until(lambda: one.times == [0, 1, 2] and one.feed.ended)
    for place in range(3, 20):
        growing.add(shots[place])
        # At its end, as this clock stands still: before that, the next sample would be due later.
        one.until(lambda place=place: one.times[-1] == place and one.feed.ended)  # type: ignore[misc]
    assert one.times == list(range(20))
    growing.end()


def test_samples_are_those_recorded(tmp_path: Path, play: Callable[..., Played]) -> None:
    shots = list(day(2, 4, 30))
    feed = RecordedFeed(recorded(tmp_path / "a.gpuwatch", shots), speed=64)
    arrived = threading.Event()
    feed.start(arrived.set)
    feed.paused = False
    got = []
    until = time.monotonic() + 10
    while len(got) < 30 and time.monotonic() < until:
        arrived.wait(0.1)
        arrived.clear()
        got += feed.drain()
    feed.stop()
    assert got == [Storable().of(shot) for shot in shots]


def test_nothing_is_read_from_this_machine(minute: Path) -> None:
    feed = RecordedFeed(minute)
    assert feed.host.name == "node07"
    assert "recording" in feed.host.details(1, None).problem
    assert feed.host.signal(1, None, 15).state == "denied"
    assert feed.host.device_numbers(1) == ()
    feed.stop()
