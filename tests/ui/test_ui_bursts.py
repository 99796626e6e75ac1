"""Keys that come in one burst, as a paste or a slow connection gives them, and pastes of anything."""

from __future__ import annotations

import pytest
from textual import events

from gpuwatch.ui.screens.sheet_bases import LinesSheet
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.fuzz import DIGITS, session

SEEDS = (4, 48)


async def test_digits_and_closing_keys_in_one_burst_close_a_sheet_once(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        stage.push(machines.pair())
        await pilot.pause()
        await pilot.press("question_mark")
        assert isinstance(stage.app.screen, LinesSheet)
        for digit in "23":
            stage.app.post_message(events.Key(digit, digit))
        await pilot.pause()
        await pilot.pause()
        assert stage.app.screen is stage.app.tab, "the sheet is gone, the tab is there"
        assert stage.app.tab is not stage.app.overview
        # The filter, opened again while it closes, and a number that Python refuses to read.
        await pilot.press("1")
        for name in ("slash", "escape", "slash"):
            stage.app.post_message(events.Key(name, "/" if name == "slash" else None))
        stage.app.post_message(events.Paste(f"gpu:{DIGITS}"))
        await pilot.pause()
        await pilot.pause()
        assert stage.app.is_running


@pytest.mark.parametrize("seed", SEEDS)
async def test_sessions_of_bursts_and_pastes(seed: int) -> None:
    """Some of the sessions of :mod:`tests.ui.fuzz`; by hand there are thousands."""
    await session(seed)
