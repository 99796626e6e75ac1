"""The clock of the probes, on steps whose length is known."""

from __future__ import annotations

import runpy
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.experiment.probing.probe_scripts import probe_folder
from gpuwatch.experiment.probing.step_times import median_step

timing = runpy.run_path(str(probe_folder() / "_gpuwatch_timing.py"))


def test_quantiles_are_between_the_values() -> None:
    quantile = timing["quantile"]
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert quantile([1.0, 2.0], 0.1) == pytest.approx(1.1)
    assert quantile([4.0], 0.9) == 4.0


@given(st.lists(st.floats(0.001, 0.0014), min_size=10, max_size=300))
def test_probes_and_trials_have_one_interval_of_the_median(times: list[float]) -> None:
    """Probes stand alone and compute it themselves; gpuwatch compares it with its own."""
    ordered = sorted(times)
    own = median_step(ordered)
    assert own is not None
    assert timing["median_interval"](ordered) == (own.low_seconds, own.high_seconds)


def test_a_step_is_measured_with_its_synchronisation_outside_the_warm_up() -> None:
    done: list[str] = []

    def step() -> str:
        time.sleep(0.004)  # the time that is measured
        done.append("step")
        return "result"

    def synchronise(result: str) -> None:
        assert result == "result"
        done.append("sync")

    told: list[tuple[int, float]] = []
    found: dict[str, Any] = timing["measure"](
        step, synchronise, 0.3, report_progress=lambda *progress: told.append(progress), flops=8.0, examples=2
    )
    assert 0.004 <= found["median_step_seconds"] < 0.02
    assert found["p10_step_seconds"] <= found["median_step_seconds"] <= found["p90_step_seconds"]
    assert found["steps"] >= 20
    assert found["warmup_steps"] >= 5
    assert done.count("step") >= found["steps"] + found["warmup_steps"] - 1
    assert found["flops_per_second"] == pytest.approx(8.0 / found["median_step_seconds"])
    assert found["examples_per_second"] == pytest.approx(2.0 / found["median_step_seconds"])
    assert found["bytes_per_second"] is None
    assert all(steps > 0 and 0 < seconds < 5 for steps, seconds in told)


def test_slow_steps_still_give_twenty_blocks() -> None:
    found = timing["measure"](lambda: time.sleep(0.01), lambda result: None, 0.01)  # slow steps
    assert found["steps"] == 20
    assert found["steps_per_block"] == 1


def test_a_fixed_number_of_steps_is_kept() -> None:
    steps: list[int] = []
    found = timing["fixed"](lambda: steps.append(1), lambda result: None, 3)
    assert len(steps) == 3 * 21  # one block of warm-up
    assert found["steps"] == 60
