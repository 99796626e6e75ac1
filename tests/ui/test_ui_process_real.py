"""A real TensorFlow program on simulated GPUs in the Process tab, and its end in the Events tab."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Literal

import pytest

from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.session.session import Session
from gpuwatch.sim.simulated_machine import SimMachine
from gpuwatch.ui.app import GpuwatchApp
from gpuwatch.ui.screens.process import ProcessScreen
from tests.ui.waiting import until

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

PROGRAM = """
import sys, time
import tensorflow as tf
with tf.device("/GPU:0"):
    a = tf.fill([1024, 1024], 1.0)
with tf.device("/GPU:1"):
    b = tf.fill([2048, 1024], 1.0)
print("ready", flush=True)
sys.stdin.readline()
"""

Tier = Literal["driver", "plugin"]


@pytest.fixture
def program(
    sim_machine: Callable[[str], SimMachine], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Tier], subprocess.Popen[str]]]:
    """Starts the program on two GPUs that it sees the other way round; the dashboard sees the same machine."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed here")
    machine = sim_machine("2x8GiB")
    running: list[subprocess.Popen[str]] = []

    def start(tier: Tier) -> subprocess.Popen[str]:
        settings = {"CUDA_VISIBLE_DEVICES": "1,0", "TF_FORCE_GPU_ALLOW_GROWTH": "true", "MY_TOKEN": "verysecret"}
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "--api-key", "verysecret"],
            env=machine.environment(os.environ | settings, tier=tier),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        running.append(process)
        return process

    for name, value in machine.environment(os.environ).items():
        monkeypatch.setenv(name, value)
    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("tier", ["driver", "plugin"])
async def test_its_framework_map_settings_and_end(program: Callable[[Tier], subprocess.Popen[str]], tier: Tier) -> None:
    process = program(tier)
    assert process.stdout is not None
    assert process.stdin is not None
    if process.stdout.readline().strip() != "ready":
        pytest.skip(f"this build of TensorFlow does not run on the {tier} tier")
    app = GpuwatchApp(Session(LiveFeed(0.5)))
    async with app.run_test(size=(120, 40)) as pilot:

        def rows() -> list[int]:
            return [row.pid for row in app.session.snapshot.processes] if app.session.snapshot is not None else []

        await until(pilot, lambda: rows().count(process.pid) == 2)
        app.chosen_process = next(
            (row.pid, row.create_time)
            for row in (app.session.snapshot.processes if app.session.snapshot is not None else ())
            if row.pid == process.pid
        )
        await pilot.press("3")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, ProcessScreen)
        await until(pilot, lambda: screen.details is not None and not screen.reading)
        await pilot.pause()
        whole = "\n".join(
            "".join(text for text, _ in line.spans) for line in screen.facts.content + screen.about.content
        )
        assert "tensorflow 2." in screen.identity.plain
        certainty = "fact" if tier == "plugin" else "likely"
        assert f"GPU:0 → physical 1  {certainty}" in whole
        assert f"GPU:1 → physical 0  {certainty}" in whole
        shown = " ".join(whole.split())
        assert "CUDA_VISIBLE_DEVICES=1,0 → GPU:0 is physical 1, GPU:1 is physical 0" in shown
        assert "TF_FORCE_GPU_ALLOW_GROWTH=true → memory grows as needed" in shown
        assert "verysecret" not in whole + screen.identity.plain
        process.stdin.write("\n")
        process.stdin.flush()
        process.wait(30)
        await until(pilot, lambda: any(one.kind == "process.exited" for one in app.session.timeline.events()))
        went = [
            one.text for one in app.session.timeline.events() if one.kind == "process.exited" and one.pid == process.pid
        ]
        assert len(went) == 1, "both GPUs in one line"
        assert all("freed, peak" in text and "verysecret" not in text for text in went)
        assert len({row.device_uuid for row in screen.rows}) == 2, "what was last seen stays on screen"
