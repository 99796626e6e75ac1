"""The order of the GPUs: by index or by a load, in lines, cards and graphs; the cursor stays on its GPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.ui.settings.settings_file import load_settings
from gpuwatch.ui.tables.gpu_loads import ORDERS
from tests.ui import machines
from tests.ui.conftest import Stage

GIB = machines.GIB
LOADS = {
    # utilization, memory in GiB, temperature, power
    0: (10, 60, 40, 300),
    1: (90, 20, 70, 100),
    2: (50, 130, None, 200),
}


def loaded(tick: int = 0, *, swapped: bool = False) -> Snapshot:
    devices = []
    for index, (busy, held, heat, draw) in LOADS.items():
        if swapped:
            busy = 100 - busy
        readings = {"memory.used_bytes": held * GIB, "temperature.gpu_celsius": heat, "power.draw_watts": draw}
        missing = {name: Missing("failed") for name, value in readings.items() if value is None}
        known = {name: value for name, value in readings.items() if value is not None}
        devices.append(machines.device(index, tick=tick, busy=busy, readings=known, missing=missing))
    return machines.snapshot(tuple(devices), tick=tick)


def places(stage: Stage) -> list[int]:
    """Indices of the GPUs from the first place on."""
    pane = stage.app.overview.gpus
    assert pane._view is not None
    return [device.index for device in pane._view.devices]


def drawn(stage: Stage) -> str:
    return stage.app.overview.gpus.plain


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_s_sorts_the_gpus_and_the_cursor_stays_on_its_gpu(stage: Stage, size: tuple[int, int]) -> None:
    named = {"utilization": {"GPU", "UTIL"}, "memory": {"MEM", "MEMORY"}, "temperature": {"TEMP"}}
    named["power"] = {"PWR", "POWER"}
    wanted = {"utilization": [1, 2, 0], "memory": [2, 0, 1], "temperature": [1, 0, 2], "power": [0, 2, 1]}
    async with stage.opened(loaded(), size=size) as pilot:
        stage.app.overview.gpus.focus()
        await pilot.pause()
        for order in (*ORDERS[1:], "index"):
            await pilot.press("s")
            await pilot.pause()
            assert places(stage) == wanted.get(order, [0, 1, 2]), order
            assert stage.app.overview.gpus.selected.index == 0  # type: ignore[union-attr]
            marked = {one or other for one, other in re.findall(r"\b([A-Z]+)↓|↓([A-Z]+)", drawn(stage))}
            assert len(marked) == (order != "index")
            assert marked <= named.get(order, set())
            assert f"GPUs by {order}" in stage.app.screen.keys.plain  # type: ignore[attr-defined]


@pytest.mark.parametrize("layout", ["lines", "cards", "graphs"])
async def test_every_layout_follows_the_order(make_stage: Callable[..., Stage], tmp_path: Path, layout: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(f'[gpus]\norder = "memory"\nlayout = "{layout}"\n')
    stage = make_stage(settings=load_settings(file))
    async with stage.opened(loaded()) as pilot:
        text = drawn(stage)
        at = [text.index(machines.device(index).pci_bus_id) for index in (2, 0, 1)] if layout != "lines" else []
        rows = [line.split()[0] for line in text.splitlines()[1:4]] if layout == "lines" else []
        assert at == sorted(at)
        assert rows in ([], ["2", "0", "1"])
        stage.app.overview.gpus.focus()
        await pilot.press("enter")
        await pilot.pause()
        assert stage.app.chosen_gpu == machines.uuid(2)


async def test_an_order_stays_for_some_seconds(stage: Stage) -> None:
    async with stage.opened(loaded()) as pilot:
        stage.app.overview.gpus.focus()
        await pilot.press("s")
        assert places(stage) == [1, 2, 0]
        for tick in range(1, 5):
            stage.push(loaded(tick, swapped=True))
            await pilot.pause()
        assert places(stage) == [1, 2, 0]
        stage.push(*(loaded(tick, swapped=True) for tick in range(5, 30)))
        await pilot.pause()
        assert places(stage) == [0, 2, 1]


async def test_w_keeps_the_order(make_stage: Callable[..., Stage], tmp_path: Path) -> None:
    file = tmp_path / "kept.toml"
    stage = make_stage(settings=load_settings(file))
    async with stage.opened(loaded()) as pilot:
        stage.app.overview.gpus.focus()
        await pilot.press("s", "s", "s", "w")
        await pilot.pause()
    assert 'order = "temperature"' in file.read_text()
    assert load_settings(file).preferences.gpu_order == "temperature"
