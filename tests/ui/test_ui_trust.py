"""What the dashboard says of the machine never contradicts what it shows."""

from __future__ import annotations

from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.test_ui_dashboard import settle


async def test_what_is_wrong_with_a_filter_stays_until_its_text_changes(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        stage.push(machines.pair())
        await settle(pilot)
        await pilot.press("slash", *"mem>1GiB usr:x")
        for tick in (1, 2, 3):
            await settle(pilot)
            bar = stage.app.overview.filter_bar
            assert bar is not None
            assert "no field" in bar._note.plain, "samples do not take it away"
            stage.push(machines.pair(tick))
        for key in ("enter", "down"):
            await pilot.press(key)
            assert stage.app.overview.filter_bar is bar, "what means nothing is not accepted"
        assert "no field" in bar._note.plain
        await pilot.press(*["backspace"] * 6)
        await settle(pilot)
        assert "no field" not in bar._note.plain
        await pilot.press("enter")
        assert stage.app.overview.filter_bar is None
