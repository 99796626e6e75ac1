"""The live dashboard beside a recorder: where its samples come from, and back to the begin of the recording."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from gpuwatch.model.snapshot import Snapshot
from gpuwatch.monitor.feed import FeedStatus
from gpuwatch.recording.running_recorders import Announcement
from gpuwatch.ui import app as application
from gpuwatch.ui.widgets.paint import Painted
from tests.recording.days import day
from tests.recording.recordings import Growing
from tests.ui.conftest import Stage


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Growing]:
    """A recorder of this machine; dashboards look for it at once."""
    monkeypatch.setattr(application, "_PAST_AFTER", 0.01)
    monkeypatch.setattr(application, "_PAST_EVERY", 0.05)
    growing = Growing(tmp_path / "a.gpuwatch")
    announced = Announcement(growing.path, 1.0, gpm=False)
    yield growing
    announced.close()


def text(stage: Stage) -> str:
    return "\n".join(pane.plain for pane in stage.app.screen.query(Painted) if pane.display)


async def found(stage: Stage, pilot: Pilot[None]) -> None:
    for _ in range(200):
        await pilot.pause(0.02)
        if stage.app.session.past is not None:
            return
    pytest.fail("the recording is not found")


def shots() -> list[Snapshot]:
    return list(day(2, 4, 400))


async def test_a_time_before_the_start_is_typed(stage: Stage, recorder: Growing) -> None:
    recorded = shots()
    recorder.add(*recorded[:390])
    stage.app.session.looks_back = True
    async with stage.app.run_test(size=(150, 40)) as pilot:
        stage.push(*recorded[380:390])
        await found(stage, pilot)
        assert len(stage.app.session.history.times) == 390, "graphs begin with the recording"
        await pilot.press("T", *("space" if char == " " else char for char in "6 min ago"), "enter")
        await pilot.pause()
        view = stage.app.session.view()
        assert view.past is not None
        assert view.until == pytest.approx(stage.now - 360, abs=1.1)
        assert "PAUSED" in text(stage)
        assert "6 min ago" in text(stage)
        recorder.add(*recorded[390:])
        stage.push(*recorded[390:])
        await pilot.press("end")
        await pilot.pause()
        assert stage.app.session.view().until == recorded[-1].taken_at.timestamp()
        await pilot.press("home")
        assert stage.app.session.view().until == recorded[0].taken_at.timestamp()


async def test_without_a_recording_a_time_is_typed_while_paused(stage: Stage) -> None:
    async with stage.app.run_test(size=(150, 40)) as pilot:
        stage.push(*shots()[:5])
        await pilot.press("T")
        await pilot.pause()
        assert len(stage.app.screen_stack) == 1
        assert not stage.app.session.paused
        await pilot.press("P", "T", *"-3s", "enter")
        await pilot.pause()
        assert stage.app.session.view().until == pytest.approx(stage.now - 3, abs=1.1)


async def test_the_top_line_says_that_samples_are_recorded_where_there_is_room(stage: Stage) -> None:
    for width, wanted in ((160, True), (80, False)):
        stage = Stage()
        async with stage.app.run_test(size=(width, 40)) as pilot:
            stage.push(*shots()[:5])
            await pilot.pause()
            assert "recorded" not in text(stage)
            note = "samples come from gpuwatch record (7), a.gpuwatch"
            stage.feed.state = FeedStatus("ok", 0.0, recording="/x/a.gpuwatch", source_note=note)
            stage.app.session.diagnose()
            stage.app._tick()
            stage.app.tab.show(stage.app.session.view())
            await pilot.pause()
            assert ("recorded" in text(stage)) == wanted
            assert [one.text for one in stage.app.session.events if one.kind == "source.changed"] == [note]
            await pilot.press("6")
            await pilot.pause()
            assert "samples come from gpuwatch record" in text(stage)
