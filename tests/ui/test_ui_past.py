"""The live dashboard beside a recorder: where its samples come from, and back to the begin of the recording."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.recording.running_recorders import Announcement
from gpuwatch.session.event_timeline import PROBLEM_SEVERITIES
from gpuwatch.ui import app as application
from tests.recording.days import day
from tests.recording.recordings import BEGIN, Growing, troubled, with_gap
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import plain, until


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Growing]:
    """A recorder of this machine; dashboards look for it at once."""
    monkeypatch.setattr(application, "_FIRST_PAST_SECONDS", 0.01)
    monkeypatch.setattr(application, "_PAST_SECONDS", 0.05)
    growing = Growing(tmp_path / "a.gpuwatch")
    announced = Announcement(growing.path, 1.0, gpm=False)
    yield growing
    announced.close()


async def found(stage: Stage, pilot: Pilot[None]) -> None:
    await until(pilot, lambda: stage.app.session.past_path is not None)


def shots() -> list[Snapshot]:
    return list(day(2, 4, 400))


async def test_a_time_before_the_start_is_typed(stage: Stage, recorder: Growing) -> None:
    recorded = shots()
    recorder.add(*recorded[:390])
    stage.app.session.own_machine = True
    async with stage.app.run_test(size=(150, 40)) as pilot:
        stage.push(*recorded[380:390])
        await found(stage, pilot)
        assert len(stage.app.session.history.times) == 390, "graphs begin with the recording"
        await pilot.press("T", *("space" if char == " " else char for char in "6 min ago"), "enter")
        await pilot.pause()
        view = stage.app.session.view()
        assert view.position is not None
        assert view.graph_end == pytest.approx(stage.now - 360, abs=1.1)
        assert "PAUSED" in plain(stage)
        assert "6 min ago" in plain(stage)
        recorder.add(*recorded[390:])
        stage.push(*recorded[390:])
        assert "P back to now" in stage.app.overview.keys.plain
        await pilot.press("end")
        await pilot.pause()
        assert stage.app.session.view().graph_end == recorded[-1].taken_at.timestamp()
        assert not stage.app.session.paused, "the end of the past is now"
        assert "P back to now" not in stage.app.overview.keys.plain
        await pilot.press("P", "home")
        assert stage.app.session.view().graph_end == recorded[0].taken_at.timestamp()


async def test_problems_and_events_of_the_recording_can_be_gone_to(stage: Stage, recorder: Growing) -> None:
    recorded = troubled()
    recorder.add(*recorded[:390])
    stage.app.session.own_machine = True
    async with stage.app.run_test(size=(150, 40)) as pilot:
        stage.push(*recorded[385:390])
        await found(stage, pilot)
        known = stage.app.session.timeline.events()
        events = sorted({one.at for one in known})
        marks = sorted({one.at for one in known if one.severity in PROBLEM_SEVERITIES})
        assert len(marks) >= 3
        assert len(events) > len(marks)
        assert marks[0] < recorded[200].taken_at.timestamp()
        await pilot.press("n")
        await pilot.pause()
        assert "no later warning or error" in stage.app.tab.keys.plain
        assert not stage.app.session.paused, "nothing to show"
        for at in reversed(marks):
            await pilot.press("N")
            await until(pilot, lambda at=at: stage.app.session.view().graph_end == pytest.approx(at, abs=1.1))
        assert "throttled" in stage.app.tab.keys.plain
        await pilot.press("N")
        await pilot.pause()
        assert "no earlier warning or error" in stage.app.tab.keys.plain
        assert stage.app.session.view().graph_end == pytest.approx(marks[0], abs=1.1)
        await pilot.press("n")
        await pilot.pause()
        assert stage.app.session.view().graph_end == pytest.approx(marks[1], abs=1.1)
        await pilot.press("home")
        for at in events[1:]:  # the first one is at its begin
            await pilot.press("full_stop")
            await until(pilot, lambda at=at: stage.app.session.view().events[-1].at == at)
            assert stage.app.session.view().graph_end == pytest.approx(at, abs=1.1)
        await pilot.press("comma")
        await pilot.pause()
        assert stage.app.session.view().graph_end == pytest.approx(events[-2], abs=1.1)
        await pilot.press("P")
        await pilot.pause()
        assert not stage.app.session.paused


async def test_an_event_in_a_gap_is_passed(stage: Stage, recorder: Growing) -> None:
    """The sample that is shown is earlier than the event, and the next key goes on from the event."""
    shots = with_gap(130, at=60, seconds=600.0)
    recorder.add(*shots[:60])
    slept = [MachineEvent(at=BEGIN + after, kind="machine.slept", text=f"after {after} s") for after in (200.0, 400.0)]
    recorder.now = shots[60].taken_at.timestamp()
    recorder.writer.add(shots[60], (), slept)
    recorder.add(*shots[61:120])
    stage.app.session.own_machine = True
    async with stage.app.run_test(size=(150, 40)) as pilot:
        stage.push(*shots[-5:])
        await found(stage, pilot)
        await pilot.press("P", "home")
        told = []
        for _ in slept:
            await pilot.press("full_stop")
            await pilot.pause()
            told.append(stage.app.tab.keys.plain)
            assert stage.app.session.view().graph_end == pytest.approx(BEGIN + 59, abs=1.1)
        assert "after 200.0 s" in told[0]
        assert "after 400.0 s" in told[1]
        await pilot.press("comma")
        await pilot.pause()
        assert "after 200.0 s" in stage.app.tab.keys.plain


async def test_without_a_recording_a_time_is_typed_while_paused(stage: Stage) -> None:
    async with stage.app.run_test(size=(150, 40)) as pilot:
        stage.push(*shots()[:5])
        await pilot.press("T")
        await pilot.pause()
        assert len(stage.app.screen_stack) == 1
        assert not stage.app.session.paused
        await pilot.press("P", "T", *"-3s", "enter")
        await pilot.pause()
        assert stage.app.session.view().graph_end == pytest.approx(stage.now - 3, abs=1.1)


async def test_the_top_line_says_that_samples_are_recorded_where_there_is_room(stage: Stage) -> None:
    for width, wanted in ((160, True), (80, False)):
        stage = Stage()
        async with stage.opened(*shots()[:5], size=(width, 40)) as pilot:
            assert "recorded" not in plain(stage)
            note = "samples come from gpuwatch record (7), a.gpuwatch"
            stage.feed.state = FeedStatus("ok", 0.0, recording="/x/a.gpuwatch", source_note=note)
            stage.app.session.diagnose()
            stage.app._tick()
            stage.app.tab.show(stage.app.session.view())
            await pilot.pause()
            assert ("recorded" in plain(stage)) == wanted
            assert [one.text for one in stage.app.session.events if one.kind == "source.changed"] == [note]
            await pilot.press("6")
            await pilot.pause()
            assert "from gpuwatch record" in plain(stage)


async def test_escape_on_the_overview_returns_to_now_after_the_filter(stage: Stage) -> None:
    async with stage.opened(past=machines.pair) as pilot:
        await pilot.press("slash", *"bob", "enter")
        stage.app.move_playhead(lambda past: past.move_seconds(-60))
        await pilot.pause()
        assert stage.app.session.paused
        await pilot.press("escape")
        assert stage.app.overview.processes.filter is None
        assert stage.app.session.paused, "the filter first"
        await pilot.press("escape")
        assert not stage.app.session.paused


@pytest.mark.parametrize(
    ("seconds", "span", "more"), [(40, "5 min", True), (270, "5 min", False), (310, "10 min", True)]
)
async def test_the_track_says_its_span_and_what_would_keep_more(
    stage: Stage, seconds: int, span: str, more: bool
) -> None:
    async with stage.app.run_test(size=(80, 24)) as pilot:
        stage.push(*troubled(seconds))
        stage.now = BEGIN + seconds
        await pilot.press("2")
        await pilot.pause()
        strip = stage.app.tab.timeline
        assert strip is not None
        assert f" last {span} " in strip.plain
        assert (" record keeps more " in strip.plain) == more, "where the track is empty"


async def test_the_track_of_a_recorded_past_points_to_no_recorder(stage: Stage, recorder: Growing) -> None:
    recorded = troubled(310)
    recorder.add(*recorded[:300])
    stage.app.session.own_machine = True
    async with stage.app.run_test(size=(80, 24)) as pilot:
        stage.push(*recorded[300:])
        await found(stage, pilot)
        await pilot.press("2")
        await pilot.pause()
        assert stage.app.tab.timeline is not None
        assert " last 10 min " in stage.app.tab.timeline.plain
        assert "record keeps" not in stage.app.tab.timeline.plain


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_gpu_tab_has_its_last_hour_and_a_click_goes_there(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.app.run_test(size=size) as pilot:
        stage.push(*troubled(250))  # GPU 0 was hot from 60 to 180 s, GPU 1 is lost since 240 s
        await pilot.press("2")
        await pilot.pause()
        strip = stage.app.tab.timeline
        assert strip is not None
        assert not stage.app.session.paused
        assert ("▲" in strip.plain, "✖" in strip.plain) == (True, False), "of this GPU"
        assert ("GPU 0 throttled (thermal)" in strip.plain) == (size[0] > 100)
        hot = strip.plain.index("▲") + 2
        await pilot.click(strip, offset=(hot, 0))
        await pilot.pause()
        until = stage.app.session.view().graph_end
        assert until is not None
        assert 60 <= until - BEGIN <= 180
        assert stage.app.tab.focused_pane == "timeline"
        await pilot.press("escape", "right")
        await pilot.pause()
        assert "✖" in strip.plain, "of the other GPU"
