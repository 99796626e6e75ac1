"""The answer of an experiment, by its runs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuwatch.core.model.run_memory import Memory
from gpuwatch.core.model.try_results import Trial
from gpuwatch.experiment.trials.settings_comparison import compare_settings
from tests.reports.documents import GIB, MIB, full_run, recorded, step_seconds, tried

CODES = {"growth": "export TF_FORCE_GPU_ALLOW_GROWTH=true", "mixed-float16": "set_global_policy('mixed_float16')"}


def trial(name: str, held: int, step: float = 0.01, *, simulated: bool = False, **changes: Any) -> Trial:
    """A run that held ``held`` bytes, with steps of ``step`` seconds ±1 %."""
    run = full_run(config=name, group="run", verdict="ok", findings=(), primary=None, simulated=simulated)
    run = msgspec.structs.replace(run, memory=Memory(nvml_peak_bytes=held))
    return tried(name, **{"run": run, "step_time": step_seconds(step), **changes})


def failed(name: str) -> Trial:
    run = full_run(config=name, group="run", verdict="oom", primary="memory.model-too-large")
    return tried(name, run=run, step_time=None)


LARGE, SMALL = 22 * GIB, 326 * MIB


@pytest.mark.parametrize(
    ("trials", "sentence"),
    [
        (
            (trial("default", LARGE), trial("growth", SMALL)),
            "growth: the same speed (±1 %) in 326 MiB instead of 22.0 GiB",
        ),
        (
            (trial("default", LARGE), trial("growth", SMALL, 0.012)),
            "growth: 17 % slower in 326 MiB instead of 22.0 GiB",
        ),
        (
            (trial("default", LARGE, simulated=True), trial("growth", SMALL, 0.02, simulated=True)),
            "growth: the same work in 326 MiB instead of 22.0 GiB",
        ),
        (
            (trial("default", LARGE), trial("a", LARGE, 0.0101)),
            "No difference between default and a: the same memory (22.0 GiB), the same speed (±1 %)",
        ),
        ((trial("default", LARGE), trial("a", LARGE, 0.005)), "a: 2.0 times as fast, in the same memory (22.0 GiB)"),
        (
            (trial("default", SMALL), trial("a", LARGE)),
            "default holds the least: the same speed (±1 %) in 326 MiB, a in 22.0 GiB",
        ),
        (
            (failed("default"), trial("growth", SMALL)),
            "growth runs in 326 MiB, where default fails: out of memory: the program needs more GPU memory",
        ),
        (
            (trial("default", LARGE), trial("mixed-float16", LARGE, 0.004, changes_results=True)),
            "default: 22.0 GiB of GPU memory, 10.0 ms per step; mixed-float16: 2.5 times as fast, but changes results",
        ),
    ],
)
def test_what_the_runs_show(trials: tuple[Trial, ...], sentence: str) -> None:
    assert compare_settings(trials, CODES).sentence.startswith(sentence)


def test_values_that_hold_the_same_differ_in_what_the_allocator_handed_out() -> None:
    def of(batch: int, peak: int) -> Trial:
        run = full_run(config="default", group="run", verdict="ok", findings=(), primary=None, simulated=True)
        run = msgspec.structs.replace(run, memory=Memory(nvml_peak_bytes=LARGE, allocator_peak_bytes=peak))
        return tried("default", values={"BATCH": str(batch)}, run=run)

    assert compare_settings((of(32, SMALL), of(64, 2 * SMALL)), {}).sentence == (
        "BATCH=32: 326 MiB in use of the 22.0 GiB that it holds; BATCH=64: 652 MiB in use of the 22.0 GiB that it holds"
    )


def test_values_do_other_work_in_a_step_so_none_is_called_faster() -> None:
    runs = [
        trial("default", held, step, values={"BATCH": batch})
        for batch, held, step in (("32", GIB, 0.01), ("64", 2 * GIB, 0.015), ("128", 3 * GIB, 0.024))
    ]
    found = compare_settings(runs, CODES)
    assert found.sentence == (
        "BATCH=32: 1.0 GiB, 10.0 ms per step; BATCH=64: 2.0 GiB, 15.0 ms per step; BATCH=128: 3.0 GiB,"
        " 24.0 ms per step; with a different value, a step may do different work"
    )
    assert (found.best, found.code) == ("", ())
    simulated = [msgspec.structs.replace(one, run=msgspec.structs.replace(one.run, simulated=True)) for one in runs]
    assert compare_settings(simulated, CODES).sentence == "BATCH=32: 1.0 GiB; BATCH=64: 2.0 GiB; BATCH=128: 3.0 GiB"


def test_what_changes_results_is_never_the_answer() -> None:
    fast = trial("mixed-float16", LARGE, 0.004, changes_results=True)
    found = compare_settings((trial("default", LARGE), trial("growth", SMALL), fast), CODES)
    assert (found.best, found.code) == ("growth", ("export TF_FORCE_GPU_ALLOW_GROWTH=true",))
    assert "mixed-float16: 2.5 times" in found.sentence
    assert "each ran once: --rounds 3" in found.sentence
    again = [msgspec.structs.replace(fast, round=number) for number in (1, 2)]
    assert (
        "each ran once"
        not in compare_settings((trial("default", LARGE), trial("default", LARGE), *again), CODES).sentence
    )


def test_rounds_that_differ_cannot_be_told_apart() -> None:
    slow, fast = trial("default", LARGE, 0.014), trial("default", LARGE, 0.008, round=2)
    found = compare_settings((slow, trial("a", LARGE, 0.010), fast), CODES)
    assert found.best == ""
    assert "speeds cannot be told apart" in found.sentence


def test_nothing_to_compare() -> None:
    overridden = trial("growth", SMALL, overridden="train.py:3")
    assert "there is nothing to compare" in compare_settings((overridden,), CODES).sentence
    assert compare_settings((), CODES).sentence == "Nothing was run"
    assert "a, b" not in compare_settings((failed("a"), failed("b")), CODES).sentence
    assert compare_settings((failed("a"), failed("b")), CODES).sentence == (
        "a and b both run out of memory: the program needs more GPU memory than is left; gpuwatch try --recover"
        " looks for a setting with which it passes"
    )


FITS = {"weights": 8 * MIB, "activations": 20 * MIB}


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (FITS, "growth: the same speed (±1 %) in 326 MiB instead of 22.0 GiB; its tensors take 28.0 MiB at most"),
        (
            {**FITS, "activations": 5 * MIB},
            "; growth: activations take 5.0 MiB instead of 20.0 MiB at the peak of 13.0 MiB",
        ),
        (
            {"weights": 4 * MIB, "activations": 15 * MIB, "inputs": 1 * MIB},
            "; growth: activations take 15.0 MiB instead of 20.0 MiB at the peak of 20.0 MiB",
        ),
        ({"unattributed": 60 * MIB}, "; growth: the tensors take 60.0 MiB at their peak instead of 28.0 MiB"),
    ],
)
def test_what_became_of_the_tensors_where_that_was_recorded(groups: dict[str, int], said: str) -> None:
    plain = (trial("default", LARGE), trial("growth", SMALL))
    found = compare_settings((*plain, recorded("default", FITS), recorded("growth", groups)), CODES)
    assert said in found.sentence
    assert found.best == "growth"
    # The recorder slows a program down: its speed is none of the setting's.
    assert compare_settings((*plain, recorded("growth", groups)), CODES) == compare_settings(plain, CODES)


def test_what_the_same_work_takes_more_or_less_each_time_is_not_put_down_to_a_setting() -> None:
    runs = [trial("default", LARGE), trial("growth", SMALL)]
    card = [
        msgspec.structs.replace(
            one, run=msgspec.structs.replace(one.run, memory=Memory(nvml_peak_bytes=held, device_total_bytes=24 * GIB))
        )
        for one, held in zip(runs, (LARGE, SMALL), strict=True)
    ]
    more = {**FITS, "other variables": 30 * MIB}
    found = compare_settings((*card, recorded("default", FITS), recorded("growth", more)), CODES)
    assert found.sentence.endswith("instead of 22.0 GiB; its tensors take 58.0 MiB at most")


def test_runs_without_counted_steps_are_not_the_same_work() -> None:
    runs = [trial(name, held, steps=None, step_time=None) for name, held in (("default", LARGE), ("growth", SMALL))]
    assert compare_settings(runs, CODES).sentence == (
        "growth: a run of the same length (no step could be counted) in 326 MiB instead of 22.0 GiB"
    )
