"""Terminals smaller than the dashboard: GPUs with their load, memory and temperature, and what is wrong."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.ui.panes.small_terminal import small_terminal_lines
from gpuwatch.ui.screens.sheet_bases import SheetPane
from gpuwatch.ui.widgets.one_line_panes import KeyLine
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import drawn_lines, press, settle


async def test_gpus_and_the_finding_at_40x12_on_every_tab(stage: Stage) -> None:
    async with stage.opened(machines.pair(), size=(40, 12)) as pilot:
        for number in ("1", "2", "5"):
            await press(pilot, number)
            lines = drawn_lines(pilot.app)
            text = "\n".join(lines)
            for device, line in zip(machines.pair().devices, lines[1:], strict=False):
                assert f"{device.number('utilization.gpu_percent'):.0f} %" in line
                assert f"{device.number('temperature.gpu_celsius'):.0f}°C" in line
                assert "/139.8G" in line
                assert "▕" in line
            assert "holds 130.4 GiB on 1" in " ".join(text.split())
            assert "▲ 1 warning" in lines[0]
            assert "needs 60×12" in lines[-1]
            assert "q quit" in lines[-1]
        await stage.show(pilot, machines.pair(60))
        assert "12:05:31" in drawn_lines(pilot.app)[0], "it goes on"


MACHINES = {
    "pair": machines.pair,
    "broken": machines.broken,
    "no_driver": machines.no_driver,
    "hostile": machines.hostile,
    "sixteen": lambda: machines.many(16, 5),
}


@pytest.mark.parametrize("name", MACHINES)
async def test_nothing_is_wider_or_higher_than_the_terminal(stage: Stage, name: str) -> None:
    made: Snapshot = MACHINES[name]()  # type: ignore[operator]
    async with stage.opened(made, size=(80, 24)):
        view = stage.app.session.view()
    for width, height in ((59, 40), (40, 12), (30, 8), (24, 6), (20, 5), (10, 3), (3, 1)):
        lines = ["".join(text for text, _ in line.spans) for line in small_terminal_lines(view, width, height)]
        assert len(lines) <= height
        assert all(cell_len(line) <= width for line in lines), (width, height)
        if name == "sixteen" and height == 8:
            assert any("more GPUs" in line for line in lines)


async def test_what_could_not_be_read_is_a_dash(stage: Stage) -> None:
    blind = machines.device(0)
    blind = type(blind)(**{name: getattr(blind, name) for name in blind.__struct_fields__} | {"readings": {}})
    async with stage.opened(machines.snapshot((blind,)), size=(40, 12)) as pilot:
        assert "–/–G" in drawn_lines(pilot.app)[1]
        assert "0 %" not in drawn_lines(pilot.app)[1]


async def test_a_tab_is_as_before_when_the_terminal_has_grown_again(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        for number in range(1, 7):
            stage.push(machines.pair(2 * number))
            await press(pilot, str(number))
            before = [(one.id, one.region) for one in stage.app.tab.panes if one.display]
            await pilot.resize_terminal(40, 12)
            await settle(pilot)
            await stage.show(pilot, machines.pair(2 * number + 1))
            assert [one.id for one in stage.app.tab.children if one.display and one.region.area] == ["too-small"]
            await pilot.resize_terminal(120, 40)
            await settle(pilot)
            assert [(one.id, one.region) for one in stage.app.tab.panes if one.display] == before, number


async def test_the_smallest_terminal_keeps_whole_sentences_and_the_way_out(stage: Stage) -> None:
    async with stage.opened(machines.no_driver(), size=(60, 15)) as pilot:
        said = " ".join(line.strip("│ ") for line in stage.app.overview.gpus.plain.splitlines())
        assert "with --gpus all." in said
        assert "gpuwatch --sim 2x24GiB" in said
        stage.push(machines.many(2, 8))
        await pilot.pause()
        await pilot.press("K")
        await pilot.pause()
        sheet = stage.app.screen.query_one(SheetPane)
        assert sheet.ending.endswith("Esc cancels")
        assert len(sheet.ending) <= sheet.size.width


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (120, 40)])
async def test_the_keys_of_the_process_tab_stay_at_the_bottom_without_processes(
    stage: Stage, size: tuple[int, int]
) -> None:
    async with stage.app.run_test(size=size) as pilot:
        stage.push(machines.snapshot(()))
        await pilot.press("3")
        await pilot.pause()
        assert stage.app.screen.query_one(KeyLine).region.y == size[1] - 1
