"""A GPU that is lost keeps what was known of it: who held its memory, and its past."""

from __future__ import annotations

import pytest

from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.ui.screens.gpu import GpuScreen
from tests.ui import machines
from tests.ui.conftest import Stage


def _losing(tick: int) -> Snapshot:
    """GPU 0 with bob's 12 GiB on it; lost from the hundredth second on."""
    holder = machines.process(0, gpu=0, pid=4711, user="bob", readings={"gpu_memory_bytes": 12 * machines.GIB})
    here = machines.device(0, busy=90)
    if tick < 100:
        return machines.snapshot((here, machines.device(1)), (holder,), tick=tick)
    why = Missing("device_lost", code=15, detail="nvmlDeviceGetMemoryInfo: GPU is lost")
    lost = machines.device(0, state="lost", state_detail="GPU is lost", missing=dict.fromkeys(here.readings, why))
    return machines.snapshot((lost, machines.device(1)), (), tick=tick)


@pytest.mark.parametrize("size", [(120, 40), (200, 60)])
async def test_a_lost_gpu_keeps_its_past_and_who_held_it(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.opened(past=_losing, seconds=110, size=size) as pilot:
        await pilot.pause()
        text = stage.app.overview.gpus.plain
        assert "GPU is lost" in text
        assert "LAST HELD 12.0 GiB bob 4711" in text
        half = size[0] // 2
        dots = [line[:half] for line in text.splitlines() if any("\u2801" <= char <= "\u28ff" for char in line[:half])]
        assert dots, "its graph is still there"
        assert "a GPU that can be read" in stage.app.overview.processes.plain
        await pilot.press("2")
        await pilot.pause()
        tab = stage.screen(GpuScreen)
        assert "while it is lost" in tab.processes.plain
        await pilot.press("1")
        stage.push(_losing(0))
        await pilot.pause()
        assert "LAST HELD" not in stage.app.overview.gpus.plain, "it answers again"
