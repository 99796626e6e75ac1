"""The Events tab, the number in its name, and the top line's last event."""

from __future__ import annotations

import re

import msgspec
import pytest

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.ui.screens.events import EventsScreen
from gpuwatch.ui.screens.sheet_bases import LinesSheet
from gpuwatch.ui.settings.tabs import number_of, tab_labels
from gpuwatch.ui.widgets.painted_pane import PaintedPane
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import plain, press, settle

KEY = str(number_of("events"))


def alone(tick: int) -> Snapshot:
    """The pair, after bob has left it."""
    shot = machines.pair(tick)
    return msgspec.structs.replace(shot, processes=tuple(one for one in shot.processes if one.user != "bob"))


def news(stage: Stage) -> str:
    return "".join(
        text for tab, text, _ in tab_labels("overview", 200, stage.app.session.unseen_events) if tab == "events"
    )


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_newest_first_and_the_tab_says_that_something_is_new(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.app.run_test(size=size) as pilot:
        stage.push(machines.pair(0))
        await stage.show(pilot, alone(1), machines.pair(2))
        assert f"{KEY} Events new" in news(stage)
        assert " new " in stage.app.overview.top_line.plain
        await press(pilot, KEY)
        screen = stage.screen(EventsScreen)
        text = screen.event_list.plain
        assert text.index("bob's finetune.py (51877) started using GPU 0") < text.index(
            "bob's finetune.py (51877) exited on GPU 0"
        )
        assert "after 74 min, 31.9 GiB" in text
        assert "12:04:33" in text
        assert " new " not in screen.top_line.plain
        await stage.show(pilot, alone(3))
        assert screen.event_list.plain.count("(51877) exited on GPU 0") == 2
        assert " new " not in screen.top_line.plain
        await press(pilot, "1")
        assert " new " not in stage.app.overview.top_line.plain
        await stage.show(pilot, machines.pair(4))
        assert " new " in stage.app.overview.top_line.plain


async def test_the_cursor_stays_with_its_event_and_enter_opens_it(stage: Stage) -> None:
    async with stage.opened(machines.pair(0), alone(1), machines.pair(2)) as pilot:
        await press(pilot, KEY, "down")
        screen = stage.screen(EventsScreen)
        chosen = screen.event_list.item_under_cursor
        await stage.show(pilot, alone(3))
        assert screen.event_list.item_under_cursor is chosen
        await press(pilot, "enter")
        assert isinstance(stage.app.screen, LinesSheet)
        assert "process.exited · fact" in stage.app.screen.pane.plain


async def test_nothing_has_happened(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        await press(pilot, KEY)
        assert "the driver's first answer" in plain(stage)
        await stage.show(pilot, machines.pair(0))
        assert "No events since" in plain(stage)
        assert "12:0" not in plain(stage).partition("\n")[2], "there is no event with its time"
        assert "view state" not in stage.app.screen.keys.plain, "nothing to view"  # type: ignore[attr-defined]


async def test_the_top_line_tells_the_last_event_where_it_fits(stage: Stage) -> None:
    async with stage.opened(machines.pair(0), alone(1), size=(200, 60)) as pilot:
        stage.now += 8
        stage.app._last_sample_at = 0.0
        stage.app._tick()
        await settle(pilot)
        assert "finetune.py (51877) exited" in stage.app.overview.top_line.plain
        assert stage.app.overview.top_line.plain.rstrip().endswith("1s")
        stage.now += 1000
        stage.app._last_sample_at = 0.0
        stage.app._tick()
        await settle(pilot)
        assert "ago" not in stage.app.overview.top_line.plain


async def test_a_driver_that_hangs_and_answers_is_in_the_list(stage: Stage) -> None:
    async with stage.opened(machines.pair(0)) as pilot:
        stage.feed.state = FeedStatus("not-answering", 6.0, 5.0)
        stage.now += 6
        stage.app._tick()
        await stage.show(pilot, machines.pair(30))
        await press(pilot, KEY)
        text = plain(stage)
        assert "does not answer" in text
        assert "answers again, after 29 s" in text


async def test_a_frozen_list_stands_still(stage: Stage) -> None:
    async with stage.opened(machines.pair(0), alone(1)) as pilot:
        await press(pilot, KEY, "P")
        before = stage.app.tab.query_one("#event-list", PaintedPane).plain
        await stage.show(pilot, machines.pair(2), alone(3))
        assert stage.app.tab.query_one("#event-list", PaintedPane).plain == before
        await press(pilot, "P")
        assert stage.app.tab.query_one("#event-list", PaintedPane).plain != before


async def test_a_wide_terminal_shows_the_event_and_the_machine_then_beside_the_list(stage: Stage) -> None:
    async with stage.app.run_test(size=(200, 60)) as pilot:
        stage.push(machines.pair(0))
        await stage.show(pilot, alone(1), machines.pair(2))
        await press(pilot, KEY)
        screen = stage.screen(EventsScreen)
        text = screen.about.plain
        assert "started using GPU 0" in text
        assert "sample of 12:04:33" in text
        assert "▸ GPU 0" in text
        assert re.search(r"▸ GPU 0 +51877 +bob +31.9 GiB", text)
        assert "48121" not in text, "a process on another GPU"
        await press(pilot, "down")
        text = screen.about.plain
        assert "exited on GPU 0" in text
        assert "51877  bob" not in text
        assert screen.event_list.size.width + screen.about.size.width == 200
        await pilot.resize_terminal(120, 40)
        await settle(pilot)
        assert not screen.about.display
        assert screen.event_list.size.width == 120


async def test_a_jump_to_an_event_draws_it_beside_the_list(stage: Stage) -> None:
    async with stage.app.run_test(size=(200, 60)) as pilot:
        stage.push(machines.pair(0))
        await stage.show(pilot, alone(1), machines.pair(2), alone(3))
        await press(pilot, KEY)
        screen = stage.screen(EventsScreen)
        assert "exited on GPU 0" in screen.about.plain
        x, y, select = screen.event_list.jump_targets()[1]
        select(False)  # as a label of jump mode does
        await settle(pilot)
        assert "started using GPU 0" in screen.about.plain
        await pilot.click(screen.event_list, offset=(x + 5, y + 1))
        await settle(pilot)
        assert "exited on GPU 0" in screen.about.plain, "the oldest"
        assert screen.event_list.cursor == 2


@pytest.mark.parametrize("here", [True, False])
async def test_the_cursor_goes_to_the_event_that_a_key_went_to(stage: Stage, here: bool) -> None:
    async with stage.app.run_test(size=(200, 60)) as pilot:
        stage.push(machines.pair(0))
        await stage.show(pilot, alone(1), machines.pair(2), alone(3), alone(4))
        await press(pilot, KEY, "end")
        if not here:
            await press(pilot, "1")
        await press(pilot, "P", "comma", "comma", *(KEY if not here else ""))
        screen = stage.screen(EventsScreen)
        assert screen.event_list.item_under_cursor is screen.event_list.items[0]
        assert "started using GPU 0" in screen.about.plain
