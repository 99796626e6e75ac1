"""The past of a dashboard beside a recorder: what was recorded, and what was kept while nobody recorded."""

from __future__ import annotations

import datetime
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.history.last_hour import MAX_EVENTS, LastHour
from gpuwatch.machine.history.machine_event import MachineEvent, still_lasting
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.running_recorders import Announcement
from gpuwatch.machine.recording.writer import Clock, RecordingWriter, StorableSnapshots
from gpuwatch.session import recorded_and_live_samples
from gpuwatch.session.recorded_and_live_samples import JoinedSamples, RecordedPast, open_past
from gpuwatch.session.session import Session
from tests.diagnosis.test_conditions import HOT
from tests.diagnosis.watching import BEGIN, gpu, of, program, watched
from tests.diagnosis.watching import sample as watching_sample
from tests.recording.days import day
from tests.ui.feed import FakeFeed

POWER = "power.draw_watts"
METRICS = frozenset({POWER})


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_and_live_samples, "_POLL_SECONDS", 0.0)


def at(shot: Snapshot) -> float:
    return shot.taken_at.timestamp()


class Recorded:
    """A file that is written by hand."""

    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self.path = path
        self.writer = self.begin()

    def begin(self) -> RecordingWriter:
        clock = Clock(lambda: self.now, lambda: self.now, lambda: self.now, lambda: "boot")
        self.writer = RecordingWriter(self.path, clock=clock)
        return self.writer

    def add(self, shots: list[Snapshot], events: tuple[MachineEvent, ...] = ()) -> None:
        for shot in shots:
            self.now = at(shot)
            self.writer.add(shot, (), events)
            events = ()


def test_the_recording_comes_first_and_gaps_are_filled_with_what_was_kept(tmp_path: Path) -> None:
    shots = list(day(1, 2, 700))
    recorded, kept = Recorded(tmp_path / "a.gpuwatch"), LastHour()
    recorded.add(shots[:400])
    for shot in shots[300:500]:  # the dashboard was started at 300, the recorder ended at 400
        kept.add(shot)
    with Recording(recorded.path) as recording:
        joined = JoinedSamples(kept, recording)
        assert list(joined.times) == [at(one) for one in shots[:400] + shots[402:500]], "two samples are near enough"
        assert joined.times[-3:] == [at(one) for one in shots[497:500]]
        stored = StorableSnapshots()
        expected = [stored.of(one) for one in shots]
        for place in (0, 200, 350, 399):
            assert joined.at(at(shots[place]) + 0.3).snapshot == expected[place]
        for place in (402, 450, 499):
            assert joined.at(at(shots[place]) + 0.3).snapshot == shots[place]
        assert joined.at(0.0).snapshot == expected[0]
        power = [shot.devices[0].number(POWER) for shot in shots]
        uuid = shots[0].devices[0].uuid

        def graph(end: int, seconds: float) -> list[float | None]:
            return list(joined.history(at(shots[end]), seconds, METRICS).series(uuid, POWER))

        assert graph(250, 99.5) == power[151:251]
        assert graph(450, 99.5) == power[351:400] + power[402:451]
        assert graph(480, 29.5) == power[451:481]
        row = shots[450].processes[0]
        rows = list(joined.process((row.pid, row.create_time), at(shots[380]), at(shots[420])))
        assert [moment for moment, _ in rows] == [at(one) for one in shots[380:400] + shots[402:421]]
        recorded.writer.close()
        recorded.begin()
        recorded.add(shots[600:610])  # a recorder runs again
        for shot in shots[500:610]:
            kept.add(shot)
        assert list(joined.times) == [at(one) for one in shots[:400] + shots[402:598] + shots[600:610]]
        assert joined.at(at(shots[605])).snapshot == expected[605]
        assert joined.spans_without_gaps(5.0) == [(at(shots[0]), at(shots[609]))]
    with Recording(recorded.path) as recording:
        assert JoinedSamples(LastHour(), recording).spans_without_gaps(5.0) == [
            (at(shots[0]), at(shots[399])),
            (at(shots[600]), at(shots[609])),
        ]


def test_a_memory_that_is_empty_or_older(tmp_path: Path) -> None:
    shots = list(day(1, 1, 20))
    recorded = Recorded(tmp_path / "a.gpuwatch")
    recorded.add(shots[10:])
    with Recording(recorded.path) as recording:
        joined = JoinedSamples(LastHour(), recording)
        assert list(joined.times) == [at(one) for one in shots[10:]]
        kept = LastHour()
        for shot in shots[:12]:
            kept.add(shot)
        joined = JoinedSamples(kept, recording)
        assert list(joined.times) == [at(one) for one in shots[:8] + shots[10:]]
        assert joined.at(at(shots[3])).snapshot == shots[3]


def test_events_from_before_the_start_are_those_of_the_recorder(tmp_path: Path) -> None:
    shots = list(day(1, 1, 20))
    event = MachineEvent(at=at(shots[2]), kind="x", text="was recorded", severity="error")
    both = MachineEvent(at=at(shots[15]), kind="x", text="seen by both")
    recorded, kept = Recorded(tmp_path / "a.gpuwatch"), LastHour()
    recorded.add(shots[:15], (event,))
    recorded.add(shots[15:], (both,))
    for shot in shots[10:]:
        kept.add(shot)
    kept.add_events([both])
    with Recording(recorded.path) as recording:
        joined = JoinedSamples(kept, recording)
        assert [one.text for one in joined.events() if one.kind == "x"] == ["was recorded", "seen by both"]
        kept.add_events([replace(both, text=str(number)) for number in range(MAX_EVENTS + 5)])
        assert len(joined.events()) == MAX_EVENTS + 2, "and that the recording began"
        assert [one.text for one in joined.latest_events] == [str(number) for number in range(5, MAX_EVENTS + 5)]


def past_of(path: Path) -> RecordedPast:
    recording = Recording(path)
    return recorded_and_live_samples.read_past(recording)._replace(
        history=recording.history(recording.end or 0.0, 600, METRICS)
    )


def test_a_session_goes_back_beyond_its_start(tmp_path: Path) -> None:
    shots = list(day(1, 2, 100))
    recorded = Recorded(tmp_path / "a.gpuwatch")
    recorded.add(shots)
    feed = FakeFeed()
    session = Session(feed, clock=lambda: recorded.now, own_machine=True)
    session.start(lambda: None)
    feed.push(*shots[90:])
    session.take()
    playhead = session.pause()
    assert session.past_path is None
    session.look_back_into(past_of(recorded.path))
    assert session.past_path == recorded.path
    power = [shot.devices[0].number(POWER) for shot in shots]
    assert list(session.history.times) == [at(one) for one in shots]
    assert list(session.history.series(shots[0].devices[0].uuid, POWER)) == power
    other = list(session.history.series(shots[0].devices[0].uuid, "temperature.gpu_celsius"))
    assert other == [shot.devices[0].number("temperature.gpu_celsius") for shot in shots[90:]]
    feed.push(shots[-1])
    session.take()
    assert list(session.history.series(shots[0].devices[0].uuid, POWER)) == [*power, power[-1]]
    playhead.move_to_first()
    view = session.view()
    assert view.snapshot == StorableSnapshots().of(shots[0])
    assert view.position is not None
    assert view.position.begin <= at(shots[0])
    assert view.position.end == at(shots[-1])
    assert view.position.gapless == [(at(shots[0]), at(shots[-1]))]
    playhead.move_seconds(60)
    assert playhead.moment == pytest.approx(at(shots[60]), abs=1.1)
    playhead.move_to_last()
    assert playhead.moment == at(shots[-1])
    session.stop()
    after = past_of(recorded.path)
    session.look_back_into(after)
    with pytest.raises(Exception, match="closed"):
        after.recording.refresh()


@pytest.mark.parametrize("found_after", [1, 40])
def test_what_lasted_when_it_was_started_began_when_the_recorder_saw_it(tmp_path: Path, found_after: int) -> None:
    """One fact, one beginning, one event: also where the recording is found after the first samples."""

    def make(second: int) -> Snapshot:
        hot = HOT if 20 <= second < 400 else {}
        row = program(7, gpu=1)
        row.readings["idle_since"] = int(BEGIN.timestamp())
        return watching_sample(second, [gpu(busy=95.0, readings=hot), gpu(1, used=21.0)], [row])

    recorded, recorder = Recorded(tmp_path / "a.gpuwatch"), ConditionEngine()
    for shot in (make(second) for second in range(300)):
        events = tuple(recorder.observe(shot))
        recorded.add([shot], events)
    feed = FakeFeed()
    session = Session(feed, clock=lambda: recorded.now, own_machine=True)
    session.start(lambda: None)

    def show(begin: int, end: int) -> None:
        for second in range(begin, end):
            feed.push(make(second))
            session.take()
            session.diagnose()

    show(290, 290 + found_after)
    session.look_back_into(past_of(recorded.path))
    show(290 + found_after, 380)
    found = {one.id: one for one in session.findings}
    hot, idle = found["throttle.thermal"], found["idle.memory-held"]
    assert hot.since == BEGIN + datetime.timedelta(seconds=20)
    local = hot.since.astimezone()
    assert f"since {local:%H:%M:%S}, for 5 min" in hot.evidence[0]
    assert not any("at least" in line for line in hot.evidence)
    assert idle.since == BEGIN
    assert idle.severity == "warning", "it has lasted long enough"
    assert "for 6 min" in idle.evidence[1]
    told = ["throttle.began", "idle-memory.began", "idle-memory.changed"]
    assert [one.kind for one in session.events if one.cause] == told
    assert session.unseen_events == 1, "what the recorder had told is not new"
    (episode,) = session.throttling("GPU-0", recorded.now + 380)
    assert (episode.began, episode.at_start) == (hot.since.timestamp(), False)
    assert session.view().since.throttling == BEGIN.timestamp()
    show(380, 440)
    assert [one.kind for one in session.events if one.cause] == [*told, "throttle.ended"]
    (incident,) = [one for one in session.event_index.incidents.incidents if one.uuids == ("GPU-0",)]
    assert (incident.begin, incident.end) == (BEGIN.timestamp() + 20, BEGIN.timestamp() + 399)
    session.stop()


def test_what_the_recorder_found_at_its_own_start_began_at_least_then(tmp_path: Path) -> None:
    make = lambda second: watching_sample(second, [gpu(busy=95.0, readings=HOT)])  # noqa: E731
    alone = watched(make(second) for second in range(100))
    assert of(alone.findings, "throttle.thermal")[0].evidence[0].startswith("at least since ")
    later = watched(watching_sample(second, [gpu(readings=HOT if second > 5 else {})]) for second in range(100))
    assert of(later.findings, "throttle.thermal")[0].evidence[0].startswith("since ")
    onsets = [replace(event, seen=1.0, at=1.0) for event in alone.events if event.cause]
    begun = still_lasting([MachineEvent(at=0.5, kind="recording.began", text=""), *onsets])
    assert [(one.since, one.at_least) for one in begun] == [(1.0, True)]
    assert not still_lasting([*onsets, MachineEvent(at=2.0, kind="recording.began", text="")])


def test_the_recording_of_a_recorder_that_runs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    recorded = Recorded(tmp_path / "a.gpuwatch")
    assert open_past(None) is None
    announced = Announcement(recorded.path, 1.0, gpm=False)
    assert open_past(None) is None, "it has no samples yet"
    recorded.add(list(day(1, 1, 3)))
    found = open_past(None)
    assert found is not None
    assert found.recording.samples == 3
    assert len(found.history.times) == 3
    found.recording.close()
    assert open_past(recorded.path) is None
    announced.close()
    assert open_past(None) is None


@pytest.mark.thorough
def test_a_jump_into_a_long_recording_is_quick(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "a.gpuwatch")
    recorded.add(list(day(2, 10, 3600)))
    kept = LastHour()
    with Recording(recorded.path) as recording:
        joined = JoinedSamples(kept, recording)
        list(joined.times[:1])
        took = []
        for place in range(0, 3600, 360):
            began = time.perf_counter()
            joined.at(joined.times[place])
            took.append(time.perf_counter() - began)
        assert sorted(took)[5] < 0.1
