"""A session over a hand-made feed: what it keeps, finds, and shows of now and of the past. No screen is needed."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import FAILED_ITSELF, Snapshot
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.history.last_hour import LastHour
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.sample_gaps import Gap
from gpuwatch.session.event_timeline import EventIndex, Incident, IncidentTrack
from gpuwatch.session.process_history import process_identity
from gpuwatch.session.session import INTERVALS_SECONDS, Session
from gpuwatch.session.snapshots import _host_snapshot, stream_snapshots
from tests.ui import machines
from tests.ui.feed import FakeFeed
from tests.ui.fixed_findings import FixedFindings

HOT = Finding(id="throttle.thermal", severity="warning", certainty="fact", title="GPU 0 is hot")
WELL = Finding(id="healthy", severity="info", certainty="likely", title="No problems found")


def pair(tick: int) -> Snapshot:
    """Two GPUs with their processes, of which nobody has found anything yet."""
    return replace(machines.pair(tick), findings=())


class Watched:
    """A session, its feed, and the clock that both live by."""

    def __init__(self, conditions: ConditionEngine | None = None) -> None:
        self.now = machines.NOON.timestamp()
        self.feed = FakeFeed()
        self.wakes = 0
        self.session = Session(self.feed, clock=lambda: self.now, conditions=conditions)
        self.session.start(self._wake)

    def _wake(self) -> None:
        self.wakes += 1

    def push(self, *snapshots: Snapshot) -> list[Snapshot]:
        self.now = snapshots[-1].taken_at.timestamp()
        self.feed.push(*snapshots)
        return self.session.take()


def test_textual_is_not_needed() -> None:
    script = Path(__file__).with_name("without_screen.py")
    root = Path(__file__).parents[2]
    code = f"import runpy, sys; sys.path.insert(0, {str(root)!r}); runpy.run_path({str(script)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_samples_become_history_timeline_and_view() -> None:
    watched = Watched()
    session = watched.session
    assert session.take() == []
    assert session.view().waiting
    assert watched.push(*(pair(tick) for tick in range(20))) == [pair(tick) for tick in range(20)]
    assert watched.wakes == 1
    assert session.history.sample_count == 20
    assert len(session.timeline.times) == 20
    view = session.view()
    assert view.snapshot == pair(19)
    assert (view.graph_end, view.now, view.position, view.live) == (watched.now, watched.now, None, None)
    assert (watched.feed.started, watched.feed.stopped) == (1, 0)
    session.stop()
    session.stop()
    assert watched.feed.stopped == 1


def test_the_first_sample_is_diagnosed_when_it_is_asked_for_and_later_ones_when_they_come() -> None:
    watched = Watched()
    session = watched.session
    watched.push(replace(pair(0), findings=(HOT,)))
    assert session.view().findings == (HOT,)
    assert session.event_count == 0
    session.diagnose()
    assert [one.id for one in session.view().findings] == ["throttle.thermal"], "not healthy beside it"
    conditions = FixedFindings(HOT)
    watched = Watched(conditions)
    watched.push(pair(0))
    assert watched.session.view().errors_and_warnings == (HOT,)
    watched.push(pair(1), pair(2))
    assert conditions.judged == [pair(0), pair(1), pair(2)]
    kept = watched.session.timeline.at(watched.now)
    assert kept is not None
    assert kept.findings == (HOT,), "what was found is kept with its sample"


def test_a_driver_that_is_silent_is_an_event_and_a_finding_and_ends_all_well() -> None:
    watched = Watched(FixedFindings(WELL))
    session = watched.session
    watched.push(pair(0))
    session.diagnose()
    assert session.view().findings == (WELL,)
    watched.now += 20
    watched.feed.state = FeedStatus("not-answering", 20.0, 19.0)
    session.look_at_feed()
    assert [one.kind for one in session.timeline.events()][-1] == "silence.began"
    assert [one.id for one in session.view().errors_and_warnings] == ["driver.bad-state"]
    assert WELL not in session.view().findings
    assert session.view().last_problem_at == watched.now
    watched.feed.state = FeedStatus("ok", 0.0)
    watched.push(pair(30))
    assert session.view().errors_and_warnings == ()


def test_a_moment_of_a_silence_is_not_well_when_it_is_looked_at_again() -> None:
    watched = Watched(FixedFindings(WELL))
    session = watched.session
    watched.push(*(pair(tick) for tick in range(3)))
    session.diagnose()
    begun = watched.now
    watched.now += 8
    watched.feed.state = FeedStatus("not-answering", 8.0, 7.0)
    session.look_at_feed()
    watched.push(pair(30))
    watched.feed.state = FeedStatus("ok", 0.0)
    watched.push(pair(31))
    past = session.pause()
    for moment, found in ((begun, ["healthy"]), (begun + 15, ["driver.bad-state"]), (begun, ["healthy"])):
        past.move_to(moment)
        view = session.view()
        assert [one.id for one in view.findings] == found
        assert view.position is not None
        assert (view.graph_end, view.position.moment) == (begun, moment)


def test_a_silence_is_told_when_the_samples_around_it_are_thinned_out() -> None:
    watched = Watched(FixedFindings(WELL))
    session = watched.session
    watched.push(*(pair(tick) for tick in range(15)))
    session.diagnose()
    begun = watched.now
    watched.now += 3
    watched.feed.state = FeedStatus("not-answering", 3.0, 2.0)
    session.look_at_feed()
    watched.feed.state = FeedStatus("ok", 0.0)
    for tick in (22, *range(25, 2500, 5)):
        watched.push(pair(tick))
    session.pause().move_to(begun + 5)
    assert [one.id for one in session.view().findings] == ["driver.bad-state"]


@pytest.mark.parametrize(
    ("blame", "reason", "detail"),
    [
        ("", "driver.bad-state", "no answer from the driver for 12 s: it waits"),
        ("was stopped", FAILED_ITSELF, "no sample for 12 s: the collector was stopped"),
        ("failed", FAILED_ITSELF, "it waits"),
    ],
)
def test_a_stream_accuses_the_driver_only_while_the_collector_can_run(blame: str, reason: str, detail: str) -> None:
    watched = Watched()
    status = FeedStatus("not-answering", 12.0, 11.0, detail="it waits", collector_fault=blame, machine=pair(0))
    watched.feed.state = status
    silent = _host_snapshot(watched.session, 12.0)
    assert [(one.reason, one.detail) for one in silent.problems] == [(reason, detail)]
    assert silent.host == pair(0).host


def test_a_gap_that_is_gone_to_is_told_once_and_thinned_samples_are_none() -> None:
    watched = Watched()
    session = watched.session
    watched.push(*(pair(tick) for tick in (*range(10), *range(100, 2500, 5))))
    times = session.timeline.times
    begun = next(before for before, after in pairwise(times) if after - before > 60)
    past = session.pause()
    past.move_to(begun + 50)
    view = session.view()
    assert view.position is not None
    assert view.graph_end == view.position.moment == begun
    assert session.take_gaps() == [Gap(begun, times[times.index(begun) + 1], damaged=False)]
    assert session.take_gaps() == []
    past.move_to(begun + 300)
    assert session.take_gaps() == []


def test_events_are_counted_until_they_are_seen() -> None:
    watched = Watched()
    watched.push(pair(0))
    fewer = replace(pair(1), processes=pair(1).processes[1:])
    watched.push(fewer)
    session = watched.session
    assert session.unseen_events == session.event_count == len(session.timeline.events()) > 0
    assert session.view().unseen_events == session.unseen_events
    session.see_events()
    assert session.unseen_events == 0


def test_a_paused_view_stands_still_and_goes_back_while_samples_come() -> None:
    watched = Watched()
    session = watched.session
    watched.push(*(pair(tick) for tick in range(30)))
    session.pause()
    assert session.pause() is session.playhead
    watched.push(pair(30))
    view = session.view()
    assert session.paused
    assert view.snapshot == pair(29)
    assert view.live is not None
    assert view.live.snapshot == pair(30)
    session.pause().move_samples(-9)
    back = session.view()
    assert back.snapshot is not None
    assert back.snapshot.taken_at == pair(20).taken_at
    assert back.position is not None
    assert back.position.end - back.position.begin == 300
    who = process_identity(pair(0).processes[0])
    assert session.process_history(who).times[-1] == back.graph_end
    session.resume()
    assert session.view().snapshot == pair(30)
    assert session.process_history(who).times[-1] == watched.now


def test_the_interval_goes_up_and_down_in_steps() -> None:
    watched = Watched()
    seen = []
    for _ in range(10):
        watched.session.change_interval(1)
        seen.append(watched.feed.interval)
    assert seen[-1] == INTERVALS_SECONDS[-1]
    for _ in range(10):
        watched.session.change_interval(-1)
    assert watched.feed.interval == INTERVALS_SECONDS[0]
    watched.feed.interval = 3.0
    watched.session.change_interval(-1)
    assert watched.feed.interval == 2.0, "the next one, none is left out"


def test_events_are_found_by_time_and_once_after_the_clock_was_set_back() -> None:
    index, events = EventIndex(), [MachineEvent(at=at, kind="x", text=str(at)) for at in (100.0, 200.0, 300.0)]
    index.update(events)
    assert [one.at for one in index.until(200.0)] == [100.0, 200.0]
    again = [*events, MachineEvent(at=150.0, kind="x", text="again", severity="error"), replace(events[2], at=310.0)]
    index.update(again)
    assert [one.at for one in index.until(400.0)] == [100.0, 150.0, 310.0]
    assert (index.count(150.0), index.incidents.marks) == (2, [Incident(150.0, 150.0, "error", "again")])
    assert index.nearest_event(100.0, 1, only_problems=False) == again[3]
    assert index.nearest_event(310.0, -1, only_problems=True) == again[3]
    assert index.nearest_event(310.0, 1, only_problems=False) is None
    index.update([])
    assert (index.count(400.0), index.incidents) == (0, IncidentTrack([], []))


def test_a_stream_keeps_no_hour_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts run one for a list that shows the newest sample alone."""
    feed = FakeFeed()
    monkeypatch.setattr("gpuwatch.session.snapshots.LiveFeed", lambda *_, **__: feed)
    monkeypatch.setattr(LastHour, "add", lambda *_: pytest.fail("it is kept"))
    found = stream_snapshots(1.0)
    for tick in range(3):
        feed.push(pair(tick))
        assert next(found).taken_at == pair(tick).taken_at
    found.close()
