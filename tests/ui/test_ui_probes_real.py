"""A real probe, real TensorFlow, simulated GPUs: from the key press to the verdict in the table."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.machine.history.saved_runs import RunStore
from gpuwatch.session.background_probes import ProbeParameters, ProbeRuns
from gpuwatch.sim.simulated_machine import SimMachine
from gpuwatch.ui.details.probe_descriptions import current_activity
from tests.terminal import family
from tests.ui.conftest import Stage
from tests.ui.test_ui_probes import open_probes, plain, put_cursor, until
from tests.waiting import wait_for

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]


@pytest.fixture
def probe_runs(sim_machine: Callable[[str], SimMachine], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ProbeRuns:
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed here")
    machine = sim_machine("2x2GiB")
    for name, value in machine.environment(os.environ).items():
        monkeypatch.setenv(name, value)
    return ProbeRuns(store=RunStore(tmp_path / "runs"), parameters=ProbeParameters(seconds=0.1))


async def test_two_configurations_run_and_are_compared(make_stage: Callable[..., Stage], probe_runs: ProbeRuns) -> None:
    stage = make_stage(probe_runs=probe_runs)
    async with stage.app.run_test(size=(160, 50)) as pilot:
        screen = await open_probes(stage, pilot)
        for config in ("growth", "cpu-only"):
            put_cursor(screen, config)
            await pilot.press("space")
        await pilot.press("x", "y")
        await until(pilot, lambda: probe_runs.live is None, 120)
        assert probe_runs.problem is None
        assert probe_runs.runs["growth"].verdict == "ok"
        assert probe_runs.runs["cpu-only"].verdict == "ok"
        assert probe_runs.runs["growth"].device_map[0].physical_index == 0
        assert probe_runs.runs["growth"].simulated
        text = plain(stage)
        assert "● ok" in text
        assert "GPU:0→0" in text or "0→0 1→1" in text
        assert len(probe_runs.store.latest()) == 2
        put_cursor(screen, "growth")
        await pilot.press("enter")
        await pilot.pause()
        assert "SIMULATED" in plain(stage)


async def test_stopping_real_probes_leaves_nothing(make_stage: Callable[..., Stage], probe_runs: ProbeRuns) -> None:
    probe_runs.parameters = ProbeParameters(seconds=30.0)
    before = set(family(os.getpid()))
    stage = make_stage(probe_runs=probe_runs)
    async with stage.app.run_test(size=(120, 40)) as pilot:
        put_cursor(await open_probes(stage, pilot), "growth")
        await pilot.press("space", "x", "y")
        await until(
            pilot, lambda: probe_runs.live is not None and "measuring" in current_activity(probe_runs.live), 120
        )
        started = set(family(os.getpid())) - before
        assert started
        pressed = time.monotonic()
        await pilot.press("escape")
        await until(pilot, lambda: probe_runs.live is None, 10)
        assert time.monotonic() - pressed < 5
    wait_for(lambda: not set(family(os.getpid())) - before, "the end of all that was started", 5)
