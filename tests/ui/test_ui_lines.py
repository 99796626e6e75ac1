"""States of the first screen as lines of text: what is shown, and where. Colours are for the pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from tests.ui.pictures import app_with, made_up_probe_runs
from tests.ui.waiting import drawn_lines, press, settle

SIZES = [(60, 12), (80, 24), (120, 40), (200, 60)]


def lines(pilot: Pilot[Any]) -> list[str]:
    """What the terminal shows, row by row."""
    return [line.rstrip() for line in drawn_lines(pilot.app)]


def row(pilot: Pilot[Any], *parts: str) -> str:
    """The one row that has all of these parts, in their order."""
    found = [line for line in lines(pilot) if _in_order(line, parts)]
    assert len(found) == 1, (parts, lines(pilot))
    return found[0]


def _in_order(line: str, parts: tuple[str, ...]) -> bool:
    start = 0
    for part in parts:
        start = line.find(part, start)
        if start < 0:
            return False
        start += len(part)
    return True


async def test_what_keys_do_to_the_first_screen() -> None:
    app, feed = app_with("pair")
    async with app.run_test(size=(120, 40)) as pilot:
        feed.push()
        await settle(pilot)
        at_first = lines(pilot)
        await press(pilot, "slash", *"torch")
        row(pilot, "Processes", "/ torch")
        row(pilot, "▶ 0", "51877", "bob", "torch 2.11", "cuda:0→0", "31.9 GiB", "96", "61", "102.0", "1.2 GiB", "1h19m")
        assert _in_order(lines(pilot)[-1], ("/ torch", "1 of 3"))
        assert not any("48121 alice" in line for line in lines(pilot)), "alice's does not match"
        await press(pilot, *" mem>l")
        row(pilot, "/ torch mem>l", "✖", "2GiB")
        row(pilot, "Processes", "/ torch ")
        await press(pilot, "escape")
        assert lines(pilot) == at_first
        await press(pilot, "s")
        row(pilot, "▶● GPU-MEM", "memory")
        await press(pilot, "escape")
        await press(pilot, "P")
        row(pilot, "‖ PAUSED", "12:09:30", "P back to now")
        row(pilot, "last 5 min", "─● now")
        row(pilot, "12:05", "12:06", "12:07", "12:08", "12:09")
        await press(pilot, "P")
        assert lines(pilot)[:-1] == at_first[:-1]
        assert "P pauses" in lines(pilot)[-1], "where htop sorts"
        await press(pilot, "u")
        row(pilot, "USER", "PROCS", "GPU-MEM", "CPU%", "HOST", "GPU 0", "GPU 1")
        row(pilot, "▶ alice", "1", "130.4 GiB", "1", "0.2 GiB", "·", "130.4 GiB")
        row(pilot, "  bob", "1", "31.9 GiB", "102", "1.2 GiB", "31.9 GiB", "·")
        row(pilot, "unexplained", "0.8 GiB", "·", "0.8 GiB")
        await press(pilot, "u")
        await press(pilot, "f")
        row(pilot, "│ ▲ alice's train.py (48121) holds 130.4 GiB")
        row(pilot, "GPU 1", "process 48121", "idle.memory-held", "fact")
        row(pilot, "130.4 GiB of 139.8 GiB", "pid 48121")
        row(pilot, "→", "TF_FORCE_GPU_ALLOW_GROWTH=true")
        await press(pilot, "escape")
        assert lines(pilot)[:-1] == at_first[:-1]
        await press(pilot, "space", "space", "K")
        row(pilot, "✓1", "48121", "alice")
        row(pilot, "✓0", "51877", "bob")
        row(pilot, "48121  alice", "2026-05-11 11:50:24", "train.py --bs 64 --model resnet50")
        row(pilot, "51877  bob", "2026-05-11 10:50:13", "finetune.py --lora")
        row(pilot, "▶  Cancel", "Enter")


async def test_the_other_states_of_tabs(tmp_path: Path) -> None:
    app, feed = app_with("pair", probe_runs=made_up_probe_runs(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        feed.push()
        await settle(pilot)
        await press(pilot, "4")
        row(pilot, "CONFIG", "GRANTED", "NVML", "STEPS/S", "VERDICT")
        row(pilot, "■ default", "137.9 GiB", "137.9 GiB", "293 ±0", "● ok")
        await press(pilot, "p")
        for field, value in (("Workload", "matmul mlp conv lstm copy"), ("Seconds", "1"), ("Fraction", "0.4")):
            row(pilot, "│ " + field, value, "│")
        await press(pilot, "escape", "6")
        row(pilot, "▶ 12:05:31", "alice's train.py (48121) holds 130.4 GiB on idle GPU 1")
        await press(pilot, "1", "down", "enter", "down")
        row(pilot, " 51877  bob  python finetune.py --lora", "2 of 3")
        row(pilot, "cuda:0 → physical 0", "likely", "31.9 GiB")
        row(pilot, "– its environment cannot be read:")
        row(pilot, "└─51877 python finetune.py --lora")


async def test_probes_of_which_none_ran(tmp_path: Path) -> None:
    probe_runs = made_up_probe_runs(tmp_path)
    probe_runs.runs, probe_runs.selected, probe_runs.interpreter = {}, set(), None
    app, feed = app_with("pair", probe_runs=probe_runs)
    async with app.run_test(size=(80, 24)) as pilot:
        feed.push()
        await press(pilot, "4")
        row(pilot, "▶   ▾ memory  7")
        row(pilot, "□ default", "What default shows")
        assert not any("●" in line for line in lines(pilot)[1:]), "no verdict without a run"


@pytest.mark.parametrize("machine", ["one", "sixteen", "eight200", "simulated", "broken", "hostile"])
async def test_every_machine_fits_every_size(machine: str) -> None:
    """Frames are closed, the keys are the last line, and each GPU stands once with its memory."""
    app, feed = app_with(machine, ticks=2)
    async with app.run_test(size=SIZES[0]) as pilot:
        feed.push()
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await settle(pilot)
            shown = lines(pilot)
            assert len(shown) == size[1]
            assert max(map(cell_len, shown)) <= size[0]
            assert "quit" in shown[-1] or "help" in shown[-1]
            for opening, closing in (("╭", "╮"), ("╰", "╯")):
                for line in shown:
                    assert line.count(opening) == line.count(closing), line
            overview = app.overview
            assert overview.gpus.region.bottom <= overview.keys.region.y
            assert overview.processes.size.height >= (5 if size[1] >= 24 else 1)
            assert app.session.snapshot is not None
            for device in app.session.snapshot.devices:
                used = device.readings.get("memory.used_bytes")
                if isinstance(used, int):
                    assert f"{used / 2**30:.1f}" in overview.gpus.plain, device.index
