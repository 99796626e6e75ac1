"""Machines at random: whatever is missing, at whatever size, every line keeps its width."""

from __future__ import annotations

import random

import pytest

from gpuwatch.core.model.metrics import METRICS
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import PROCESS_READINGS, Device, Host, Process, Snapshot
from gpuwatch.ui.drawing.text_width import width_of
from tests.ui import machines
from tests.ui.conftest import Stage

REASONS = ("not_supported", "permission_denied", "failed", "stale", "device_lost", "no_sample", "unknown")
NAMES = (
    "NVIDIA H200",
    "",
    "漢字カナ GPU",
    "NVIDIA GeForce RTX 4090 Laptop GPU with a very long name indeed",
    "\x1b[31m[b]x",
)


def some_missing(rng: random.Random, ids: list[str]) -> dict[str, Missing]:
    share = rng.choice((0.0, 0.2, 0.7, 1.0))
    return {name: Missing(rng.choice(REASONS), detail="why [b]x") for name in ids if rng.random() < share}


def some_device(rng: random.Random, index: int) -> Device:
    extreme = rng.choice((0, 1, 7, 1e3, 2.0**40, 1e15))
    numbers = {spec.id: extreme * rng.random() for spec in METRICS if spec.unit.value != "name"}
    words = {
        "clocks.event_reasons": rng.choice(
            ("none", "idle", "hw-thermal+sw-power-cap+hw-slowdown+hw-power-brake+sw-thermal")
        ),
        "performance.state": rng.choice(("P0", "P12")),
    }
    return machines.device(
        index * rng.choice((1, 1, 11)) + index,
        uuid=f"GPU-{index}",
        name=rng.choice(NAMES),
        state=rng.choice(("ok", "ok", "ok", "lost", "asleep", "reset-required", "failed")),
        state_detail=rng.choice(("", "GPU has fallen off the bus " * 9)),
        simulated=rng.random() < 0.3,
        readings=numbers | words,
        missing=some_missing(rng, [spec.id for spec in METRICS]),
    )


def some_process(rng: random.Random, number: int, gpus: int) -> Process:
    gpu = rng.randrange(gpus) if gpus else None
    return machines.process(
        number,
        gpu=gpu,
        pid=rng.choice((number, 4194304 - number)),
        user=rng.choice((None, "root", "漢字漢字漢字漢字", "x" * 50)),
        command=rng.choice((None, "", "python " * 80, "漢字 " * 30)),
        framework=rng.choice((None, "tensorflow 2.21.0", "torch", "somethingelse 1.2.3.4.5")),
        note=rng.choice(("", "permission denied")),
        readings={"cpu_percent": rng.choice((0.0, 12800.0))},
        missing=some_missing(rng, list(PROCESS_READINGS)),
    )


def some_machine(rng: random.Random) -> Snapshot:
    gpus = rng.choice((0, 1, 2, 3, 7, 8, 16, 20))
    return machines.snapshot(
        tuple(some_device(rng, n) for n in range(gpus)),
        tuple(some_process(rng, n, gpus) for n in range(rng.choice((0, 1, 30)))),
        findings=(machines.HELD,) if rng.random() < 0.5 else (),
        simulated=rng.random() < 0.5,
        driver=None if rng.random() < 0.2 else machines.pair().driver,
        host=rng.choice(
            (
                machines.pair().host,
                Host(hostname=None, cpu_percent=None, cpu_count=None, memory_used_bytes=None, memory_total_bytes=None),
            )
        ),
    )


@pytest.mark.parametrize("seed", range(24))
async def test_lines_keep_their_width(seed: int) -> None:
    rng = random.Random(seed)
    stage = Stage(read_only=rng.random() < 0.5)
    size = (rng.randrange(60, 260), rng.randrange(12, 80))
    async with stage.app.run_test(size=size) as pilot:
        for _ in range(3):
            stage.push(*(some_machine(rng) for _ in range(2)))
            await pilot.pause()
            await pilot.press(
                *rng.sample(["down", "end", "s", "escape", "i", "escape", "tab", "right", "S", "space"], 4)
            )
            await pilot.press("escape")
            overview = stage.app.overview
            for pane in (overview.top_line, overview.host, overview.gpus, overview.summary, overview.processes):
                if not pane.display or not pane.size.width:
                    continue
                for y, line in enumerate(pane.lines[: pane.size.height]):
                    assert sum(width_of(text) for text, _ in line.spans) <= pane.size.width, (pane, y, line)
                    strip = pane.render_line(y)
                    assert strip.cell_length == pane.size.width
                    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in strip.text)
            size = (rng.randrange(60, 260), rng.randrange(12, 80))
            await pilot.resize_terminal(*size)
            await pilot.pause()
            if overview.gpus.display and overview._view is not None and overview._view.devices:
                assert len(overview.gpus.lines) == overview.gpus.styles.height.value  # type: ignore[union-attr]
