"""Jump mode: a label on everything that can be gone to, over the screen as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpuwatch.ui.screens.jump_mode import JumpScreen, jump_labels
from gpuwatch.ui.settings.tabs import TABS
from gpuwatch.ui.widgets.probe_table import ConfigRow
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.pictures import made_up_probe_runs
from tests.ui.waiting import drawn_lines, press, settle


async def jump(stage: Stage, pilot: Pilot[None]) -> JumpScreen:
    await press(pilot, "semicolon")
    return stage.screen(JumpScreen)


def label_at(screen: JumpScreen, x: int, y: int) -> str:
    return next(label for label, target in screen.targets.items() if (target.x, target.y) == (x, y))


def test_no_label_is_the_start_of_another() -> None:
    for count in (0, 1, 26, 27, 300):
        found = jump_labels(count)
        assert len(set(found)) == count
        assert not any(a != b and a.startswith(b) for a in found for b in found)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_labels_stand_on_what_they_go_to(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.opened(machines.pair(), size=size) as pilot:
        below = drawn_lines(pilot.app)
        screen = await jump(stage, pilot)
        lines = drawn_lines(pilot.app)
        assert len(screen.targets) >= len(TABS) + 2 + 3, "tabs, GPUs and processes"
        for label, target in screen.targets.items():
            assert lines[target.y][target.x : target.x + len(label)] == label
        assert "Esc leaves" in lines[-1]
        assert lines[size[1] // 2][20:40] == below[size[1] // 2][20:40], "the screen below is still visible"
        await press(pilot, "escape")
        assert stage.app.screen is stage.app.overview
        assert drawn_lines(pilot.app)[1:] == below[1:]


async def test_a_label_selects_a_process_and_with_shift_opens_it(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        table = stage.app.overview.processes
        x, y, _ = table.jump_targets()[1]
        place = table.region.x + x, table.region.y + y
        first = table.item_under_cursor
        await press(pilot, label_at(await jump(stage, pilot), *place))
        assert table.has_focus
        assert table.item_under_cursor is not first
        chosen = table.item_under_cursor
        await pilot.press("up")
        await press(pilot, label_at(await jump(stage, pilot), *place).upper())
        assert stage.app.tab.TAB == "process"
        assert chosen is not None
        assert str(chosen.pid) in "\n".join(drawn_lines(pilot.app))  # type: ignore[union-attr]


async def test_a_label_goes_to_a_gpu_and_a_digit_to_a_tab(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        gpus = stage.app.overview.gpus
        x, y, _ = gpus.jump_targets()[1]
        place = gpus.region.x + x, gpus.region.y + y
        await press(pilot, label_at(await jump(stage, pilot), *place))
        assert gpus.has_focus
        assert gpus.selected is not None
        assert gpus.selected.index == 1
        await press(pilot, label_at(await jump(stage, pilot), *place).upper())
        assert stage.app.tab.TAB == "gpu"
        assert stage.app.chosen_gpu == machines.uuid(1)
        await jump(stage, pilot)
        await press(pilot, "5")
        assert stage.app.tab.TAB == "findings"
        await jump(stage, pilot)
        await press(pilot, "exclamation_mark")
        assert stage.app.screen is stage.app.tab, "a key that is no label leaves"


async def test_labels_of_many_rows_have_two_letters(stage: Stage) -> None:
    async with stage.opened(machines.many(2, 40), size=(120, 60)) as pilot:
        table = stage.app.overview.processes
        x, y, _ = table.jump_targets()[9]
        screen = await jump(stage, pilot)
        label = label_at(screen, table.region.x + x, table.region.y + y)
        assert len(label) == 2
        await press(pilot, label[0])
        assert stage.app.screen is screen
        assert label[1] in drawn_lines(pilot.app)[table.region.y + y]
        await press(pilot, label[1])
        assert stage.app.screen is stage.app.overview
        assert "▶" in drawn_lines(pilot.app)[table.region.y + y]


async def test_a_jump_to_a_probe_shows_what_belongs_to_it(make_stage: Any, tmp_path: Path) -> None:
    stage = make_stage(probe_runs=made_up_probe_runs(tmp_path))
    async with stage.app.run_test(size=(120, 50)) as pilot:
        stage.push(machines.pair())
        await press(pilot, "4")
        table = stage.app.tab.table
        number = next(
            n for n, row in enumerate(table.items) if isinstance(row, ConfigRow) and row.script.name == "growth"
        )
        x, y, _ = table.jump_targets()[number - table.top]
        screen = await jump(stage, pilot)
        await press(pilot, label_at(screen, table.region.x + x, table.region.y + y))
        assert table.item_under_cursor.script.name == "growth"
        assert "growth" in stage.app.tab.details.plain


async def test_a_jump_ends_when_the_terminal_changes_its_size(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await jump(stage, pilot)
        await pilot.resize_terminal(100, 30)
        await settle(pilot)
        assert stage.app.screen is stage.app.overview


@pytest.mark.parametrize(("gpus", "keys"), [(4, "2"), (12, "02"), (12, "11"), (1, "")])
async def test_a_gpu_is_opened_by_its_number_from_every_tab(stage: Stage, gpus: int, keys: str) -> None:
    async with stage.opened(machines.many(gpus, 3), size=(80, 24)) as pilot:
        assert "# GPU" in stage.app.overview.keys.plain
        for tab in "126":
            await press(pilot, tab)
            await press(pilot, "number_sign", *keys)
            assert stage.app.tab.TAB == "gpu"
            assert stage.app.chosen_gpu == machines.uuid(int(keys or 0))
            assert stage.app.tab.device.index == int(keys or 0)  # type: ignore[attr-defined]
