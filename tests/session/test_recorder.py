"""The recorder: what it keeps is what a session finds in the same samples."""

from __future__ import annotations

import datetime
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.storable_snapshots import StorableSnapshots
from gpuwatch.machine.recording.writer import Clock, RecordingStopped, RecordingWriter
from gpuwatch.session.current_findings import recorded_and_current_findings
from gpuwatch.session.recorder import Recorder
from tests.recording.days import day
from tests.recording.recordings import troubled
from tests.ui.feed import FakeFeed
from tests.waiting import wait_for


class Harness:
    """A recorder in a thread, fed by hand."""

    def __init__(self, file: Path) -> None:
        self.now = 0.0
        self.feed = FakeFeed()
        clock = Clock(lambda: self.now, lambda: self.now, lambda: self.now, lambda: "boot")
        self.writer = RecordingWriter(file, clock=clock)
        self.recorder = Recorder(self.feed, self.writer, clock=lambda: self.now)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        wait_for(lambda: self.feed.started, pause=0.001)

    def _run(self) -> None:
        try:
            self.recorder.run()
        except RecordingStopped as error:
            self.error = error

    def give(self, shots: list[Snapshot]) -> None:
        for shot in shots:
            self.now = shot.taken_at.timestamp()
            count = self.writer.samples
            self.feed.push(shot)
            wait_for(
                lambda count=count: self.writer.samples != count or not self._thread.is_alive(),
                "the sample in the recording",
                pause=0.0005,
            )

    def end(self) -> None:
        self.recorder.stop()
        self._thread.join(10)
        self.writer.close()
        assert self.feed.stopped == 1


def test_recorded_findings_are_those_of_the_recorded_samples(tmp_path: Path) -> None:
    """Whoever reads the file can find again what was found live."""
    shots = troubled()
    run = Harness(tmp_path / "a.gpuwatch")
    run.give(shots)
    run.end()
    conditions = ConditionEngine()
    with Recording(run.writer.path) as recording:
        kept = list(recording.snapshots())
        assert [one.snapshot for one in kept] == [StorableSnapshots().of(shot) for shot in shots]
        events = [event for one in kept for event in conditions.observe(one.snapshot)]
        recorded = [one for one in recording.events() if not one.kind.startswith(("recording.", "clock."))]
        assert recorded == events
        assert {"process.exited"} < {one.kind for one in recorded}
        again = ConditionEngine()
        for one in kept:
            again.observe(one.snapshot)
            assert one.findings == recorded_and_current_findings(one.snapshot.findings, again)
        causes = {one.finding.id for one in recording.findings()}
        assert {"throttle.thermal", "hardware.fault"} <= causes
        (hot,) = (one for one in recording.findings() if one.finding.id == "throttle.thermal")
        begin = shots[0].taken_at.timestamp()
        assert hot.since - begin == pytest.approx(60, abs=5)
        assert hot.until - begin == pytest.approx(180, abs=10)
        assert all(one.at <= other.at for one, other in pairwise(recording.events()))


def test_a_driver_that_does_not_answer_is_an_event_without_samples(tmp_path: Path) -> None:
    run = Harness(tmp_path / "a.gpuwatch")
    shots = list(day(1, 1, 3))
    run.give(shots)
    run.feed.state = FeedStatus("not-answering", 12.0, 11.0)
    run.now += 12
    assert run.feed._wake is not None
    run.feed._wake()
    with Recording(run.writer.path) as recording:
        wait_for(lambda: [one for one in recording.events() if "answer" in one.text], pause=0.01)
    run.give([replace(shots[-1], taken_at=shots[-1].taken_at + datetime.timedelta(seconds=30))])
    run.end()
    with Recording(run.writer.path) as recording:
        assert recording.samples == 4
        assert len(list(recording.gaps(10))) == 1


def test_a_file_that_cannot_be_written_ends_the_feed(tmp_path: Path) -> None:
    run = Harness(tmp_path / "a.gpuwatch")
    pages = run.writer._pragma_number("page_count")
    run.writer._db.execute(f"PRAGMA max_page_count = {pages + 10}").fetchone()
    run.give(list(day(8, 50, 200)))
    run.end()
    assert isinstance(run.error, RecordingStopped)
