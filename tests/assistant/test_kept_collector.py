"""The kept collector: findings that need time, answers while nothing comes, and one collector for all questions."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from typing import ClassVar

import pytest
from msgspec.structs import replace

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.share.assistant import long_lived_collector as kept
from tests.ui import machines

HOT = {"clocks.event_reasons": "sw-thermal", "clocks.sm_mhz": 1200, "temperature.gpu_celsius": 88}


class Feed:
    """Delivers what a test tells it to, from a thread of its own, as a feed does."""

    made: ClassVar[list[Feed]] = []

    def __init__(self, interval: float, *, on_demand: bool) -> None:
        Feed.made.append(self)
        self.interval, self.failure, self.asked, self.silent = interval, "", 0, False
        self._came: list[Snapshot] = []
        self._wake: Callable[[], None] = lambda: None
        self._number = 0

    def start(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def silence(self) -> tuple[str, str]:
        return "", ""

    def stop(self) -> None:
        self.failure = "stopped"

    def drain(self) -> list[Snapshot]:
        came, self._came = self._came, []
        return came

    def sample_now(self) -> None:
        self.asked += 1
        if not self.silent:
            # The past two minutes at the first question, so that what lasts is known.
            threading.Thread(target=self._deliver, args=(130 if self.asked == 1 else 1,)).start()

    def _deliver(self, count: int) -> None:
        now = datetime.datetime.now(datetime.UTC)
        for before in range(count - 1, -1, -1):
            device = machines.device(0, busy=97, readings=HOT)
            shot = machines.snapshot((device,), (machines.process(0, gpu=0),))
            self._came.append(replace(shot, taken_at=now - datetime.timedelta(seconds=before)))
        self._wake()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> kept.LongLivedCollector:
    Feed.made = []
    monkeypatch.setattr(kept, "LiveFeed", Feed)
    return kept.LongLivedCollector(deadline=1.0)


def test_what_lasts_is_found_beside_what_one_sample_shows(machine: kept.LongLivedCollector) -> None:
    first = machine.snapshot()
    throttled = [found for found in first.findings if found.id == "throttle.thermal"]
    assert len(throttled) == 1
    assert throttled[0].evidence
    assert not [found for found in first.findings if found.id == "healthy"]
    assert len(Feed.made) == 1
    assert Feed.made[0].interval == kept.INTERVAL_SECONDS, "the collector rests between questions"


def test_each_answer_is_new(machine: kept.LongLivedCollector) -> None:
    shots = [machine.snapshot() for _ in range(3)]
    taken = [shot.taken_at for shot in shots]
    assert taken == sorted(set(taken))
    assert len(Feed.made) == 1


def test_silence_is_told_in_time_to_all_who_ask(machine: kept.LongLivedCollector) -> None:
    machine.snapshot()
    Feed.made[0].silent = True
    answers: list[Snapshot] = []
    began = time.monotonic()
    asking = [threading.Thread(target=lambda: answers.append(machine.snapshot())) for _ in range(8)]
    for one in asking:
        one.start()
    for one in asking:
        one.join()
    assert time.monotonic() - began < 10
    assert [(shot.driver, shot.devices) for shot in answers] == [(None, ())] * 8
    assert all("did not answer within 1 s" in shot.problems[0].detail for shot in answers)


def test_an_error_of_its_own_is_not_blamed_on_the_driver(machine: kept.LongLivedCollector) -> None:
    machine.snapshot()
    Feed.made[0].silent, Feed.made[0].failure = True, "psutil cannot be imported; install it"
    shot = machine.snapshot()
    assert (shot.problems[0].detail, shot.problems[0].hint) == ("psutil cannot be imported", "install it")
