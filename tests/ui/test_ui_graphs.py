"""Graphs of a device: what becomes of them when it is lost, and what their colours say."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest

from gpuwatch.core.model.metrics import BY_ID
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.session.process_history import ProcessHistory
from gpuwatch.ui.drawing.braille_graph import axis_ends
from gpuwatch.ui.screens.gpu import GpuScreen
from gpuwatch.ui.widgets.graphs import process_axis
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import press

BOUNDED = ("memory.used_bytes", "power.draw_watts", "clocks.sm_mhz")
LOST = {metric: Missing("device_lost", code=15, detail="GPU is lost") for metric in BY_ID}


def machine(tick: int) -> Snapshot:
    """A device that is lost from the twentieth second on."""
    device = machines.device(1, tick=tick)
    if tick >= 20:
        device = machines.device(1, tick=tick, state="lost", missing=LOST)
    return machines.snapshot((machines.device(0, tick=tick), device), tick=tick)


async def test_a_lost_gpu_keeps_its_past(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 50)) as pilot:
        stage.past(machine, 40)
        stage.app.chosen_gpu = machines.uuid(1)
        await press(pilot, "2")
        screen = stage.screen(GpuScreen)
        drawn = screen.graphs.plain
        assert "limit unknown" not in drawn
        assert "0–139.8 GiB" in drawn
        assert "0–700 W" in drawn
        await press(pilot, "P", "left", "left")
        assert "0–139.8 GiB" in screen.graphs.plain, "also while looked back at"


def test_a_process_on_no_gpu_has_no_gpu_graphs(stage: Stage) -> None:
    view, of_process = stage.app.session.live_view(), ProcessHistory()
    seen = msgspec.structs.replace(machines.pair(), processes=())
    row = machines.process(0, gpu=None, device_uuid=None)
    for reading in ("gpu_memory_bytes", "sm_percent"):
        assert process_axis(reading, of_process, (row,), view) == (None, "unknown: no GPU can be read")
        assert process_axis(reading, of_process, (row,), replace(view, snapshot=seen)) == (None, "it uses no GPU")
    assert process_axis("cpu_percent", of_process, (row,), view) == (100.0, "0–100 %")
    there = machines.process(0, gpu=1)
    assert process_axis("gpu_memory_bytes", of_process, (there,), view) == (None, "GPU memory size unknown")


def test_an_unknown_total_gives_no_axis(stage: Stage) -> None:
    device = machines.device(1, state="lost", missing=LOST)
    history = stage.app.session.history
    for metric in BOUNDED:
        assert axis_ends(BY_ID[metric], device, history) is None


@pytest.mark.parametrize(
    ("caption", "readings", "style", "shown"),
    [
        ("Temperature", {"temperature.gpu_celsius": 61.0}, "temperature", "61"),
        ("Temperature", {"temperature.gpu_celsius": 91.0}, "temperature", "▲ 91"),
        ("Memory", {"memory.used_bytes": int(0.98 * 139.8 * 2**30)}, "memory", "137.0"),
        ("SM clock", {"clocks.sm_mhz": 900, "utilization.gpu_percent": 99}, "clock", "▼ 900"),
        ("Power", {"power.draw_watts": 690.0}, "power", "690"),
        ("Power", {"power.draw_watts": 750.0}, "power", "▴ 750"),
        ("GPU", {"utilization.gpu_percent": 40}, "graph", "40"),
    ],
)
async def test_a_graph_has_the_colour_and_the_mark_of_its_load(
    stage: Stage, caption: str, readings: dict[str, float], style: str, shown: str
) -> None:
    async with stage.opened(
        machines.snapshot((machines.device(0, busy=60, readings=readings),)), size=(120, 50)
    ) as pilot:
        await press(pilot, "2")
        screen = stage.screen(GpuScreen)
        lines = screen.graphs.lines
        place = next(n for n, line in enumerate(lines) if any(f"{caption} " in text for text, _ in line.spans))
        assert f"{caption} {shown} " in "".join(text for text, _ in lines[place].spans)
        below = [used for text, used in lines[place + 1].spans if len(text) > 20]
        assert below == [style]


async def test_graphs_on_a_low_terminal_have_two_rows_each(stage: Stage) -> None:
    """One row of dots has four heights, which show no course."""
    async with stage.app.run_test(size=(80, 24)) as pilot:
        for tick in range(60):
            stage.push(machines.pair(tick))
        await press(pilot, "2")
        screen = stage.screen(GpuScreen)
        lines = screen.graphs.plain.splitlines()
        captions = ("GPU 9", "Memory 3", "Power 6", "Temperature 6", "SM clock 1")
        at = [next(number for number, line in enumerate(lines) if line.startswith(f" {one}")) for one in captions]
        assert at == sorted(at)
        for begin, end in zip(at, [*at[1:], len(lines)], strict=True):
            assert end - begin >= 2, "all of them are there"
            assert all(any("\u2800" < sign <= "\u28ff" for sign in line) for line in lines[begin:end][-1:])
        full = lines[at[0] : at[1]]
        assert all(line.rstrip().endswith("⣿⣿⣿") for line in full[:2]), "95 % fills both rows"
        assert any("0–139.8 GiB · 60 s" in line for line in lines)


def once_busy(tick: int) -> Snapshot:
    """A device that was busy in one sample of many."""
    return machines.snapshot((machines.device(0, busy=37 if tick == 90 else 5, tick=tick),), tick=tick)


async def test_graphs_say_their_largest_value_and_share_the_lines(stage: Stage) -> None:
    async with stage.app.run_test(size=(160, 45)) as pilot:
        stage.past(once_busy, 280)
        await press(pilot, "2")
        screen = stage.screen(GpuScreen)
        lines = screen.graphs.plain.splitlines()
        captions = [number for number, line in enumerate(lines) if "0–" in line and " last " in line]
        assert "GPU 5 %  max 37 %" in lines[captions[0]], "not the mean of the samples of one column"
        heights = [after - before for before, after in pairwise([*captions, len(lines) - 1])]
        assert heights == sorted(heights, reverse=True), "the first is not the flattest"
        assert max(heights) - min(heights) <= 1
