"""The largest value that fits: the border that a loop by hand finds, in few runs, and only what was confirmed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.core.errors import UsageError
from gpuwatch.core.model.try_results import Largest, Trial
from gpuwatch.experiment.probing.launch_program import with_watch_hook
from gpuwatch.experiment.trials import largest_value
from gpuwatch.experiment.trials.largest_value import Search, ValueRange, fitted_line, parse_value_range
from gpuwatch.experiment.trials.trial import Goal
from gpuwatch.experiment.trials.trial_plan import Configuration
from gpuwatch.experiment.trials.trial_settings import find_setting
from gpuwatch.experiment.trials.trial_setup import TrialSetup
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import has_cuda_wheel
from tests.forked import forked
from tests.probing.watched import with_torch
from tests.reports import documents
from tests.trials.programs import document, forked_document, trial_setup, tried
from tests.waiting import wait_for

COMMAND = ("python", "train.py", "--batch", "{BATCH}")


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("BATCH=32..4096", ValueRange("BATCH", 32, 4096)),
        ("BATCH=32..4096:32", ValueRange("BATCH", 32, 4096, 32)),
        ("BATCH=0..1", ValueRange("BATCH", 0, 1)),
    ],
)
def test_a_range_is_read(text: str, span: ValueRange) -> None:
    assert parse_value_range(text, COMMAND) == span


@pytest.mark.parametrize(
    "text", ["BATCH", "BATCH=32", "BATCH=9..8", "BATCH=8..8", "BATCH=1..9:0", "OTHER=1..9", "=1..2"]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_value_range(text, COMMAND)
    assert f"--largest {text}" in refused.value.message
    assert refused.value.hint


@settings(deadline=None)
@given(
    low=st.integers(0, 1000),
    steps=st.integers(1, 3000),
    step=st.integers(1, 50),
    border=st.integers(-1, 60),
    rest=st.data(),
)
def test_the_border_is_found_in_few_runs(low: int, steps: int, step: int, border: int, rest: st.DataObject) -> None:
    span = ValueRange("N", low, low + steps * step + rest.draw(st.integers(0, step - 1)), step)
    values = range(low, span.high + 1, step)
    last = values[min(border * len(values) // 60, len(values) - 1)] if border >= 0 else low - 1
    runs: list[int] = []
    search = Search(span, lambda value, confirm: runs.append(value) or value <= last)  # type: ignore[func-returns-value]
    search.run()
    good, bad = search.border()
    assert good == (last if last >= low else None)
    assert bad == next((value for value in values if value > last), None)
    assert search.confirmed
    assert search.contradictions() == []
    assert all(value in values for value in runs)
    assert len(runs) <= span.max_runs + 2


def _searched(passes: Callable[[int, bool], bool]) -> tuple[Search, list[tuple[int, bool]]]:
    runs: list[tuple[int, bool]] = []

    def run(value: int, confirm: bool) -> bool:
        runs.append((value, confirm))
        return passes(value, confirm)

    search = Search(ValueRange("N", 1, 1000), run)
    search.run()
    return search, runs


def test_both_sides_of_the_border_are_confirmed_twice() -> None:
    search, runs = _searched(lambda value, confirm: value <= 300)
    assert search.border() == (300, 301)
    assert [runs.count((300, True)), runs.count((301, True))] == [2, 2]


def test_a_value_that_fails_only_in_a_search_is_not_the_border() -> None:
    # As with growth, where the allocator finds room if it may try again.
    search, _ = _searched(lambda value, confirm: value <= (303 if confirm else 300))
    assert search.border() == (303, 304)
    assert search.confirmed
    assert search.contradictions() == []


def test_a_value_that_passes_only_in_a_search_is_not_the_border() -> None:
    search, _ = _searched(lambda value, confirm: value <= (298 if confirm else 300))
    assert search.border() == (298, 299)
    assert search.confirmed


def test_what_contradicts_is_told() -> None:
    search, _ = _searched(lambda value, confirm: value <= 400 and value != 256)
    assert search.border() == (255, 256)
    assert search.contradictions() == ["N=256 failed, N=320 passed"]
    flaky = iter([True, False] * 50)
    search, _ = _searched(lambda value, confirm: value < 300 or (value == 300 and next(flaky)))
    assert search.border() == (299, 300)
    assert search.contradictions() == ["N=300 passed 1 of 2 times"]
    assert not search.confirmed


def test_what_is_known_stays_where_the_search_is_broken_off() -> None:
    def passes(value: int, confirm: bool) -> bool:
        if confirm:
            raise KeyboardInterrupt
        return value <= 300

    search = Search(ValueRange("N", 1, 1000), passes)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    assert (search.border(), search.confirmed) == ((300, 301), False)


def test_values_between_the_two_that_were_run_are_not_known() -> None:
    found = Largest(name="B", value=64, first_failing=96, asked="default", confirmed=False, monotonic=True)
    sentence = largest_value._largest_sentence(ValueRange("B", 1, 100), found, "interrupted")
    assert sentence == ("The largest B that fits is at least 64 and below 96; B=96 fails; not confirmed: interrupted")
    assert largest_value._largest_sentence(ValueRange("B", 1, 100, 32), found, "interrupted").startswith(
        "B=64 is the largest that fits;"
    )


def test_the_bracket_is_told_where_time_is_over() -> None:
    over, span = "no time left within --budget", ValueRange("B", 32, 4096)
    line: dict[str, Any] = {"asked": "default", "confirmed": False, "monotonic": True, "bytes_per_unit": 2.0}
    open_end = Largest(name="B", value=64, headroom_bytes=100, **line)
    assert largest_value._largest_sentence(span, open_end, over).startswith(
        "B=64 fits; larger values are not known; judging by the memory of its runs, hardly more than 114; each one more"
    )
    between = Largest(name="B", value=64, first_failing=128, headroom_bytes=40, **line)
    assert "at least 64 and below 128; judging by the memory of its runs, hardly more than 84; B=128 fails" in (
        largest_value._largest_sentence(span, between, over)
    )
    # What the line says beyond what is known to fail is no news.
    known = Largest(name="B", value=64, first_failing=70, headroom_bytes=40, **line)
    assert "hardly" not in largest_value._largest_sentence(span, known, over)
    nothing = Largest(name="B", asked="default", confirmed=False, monotonic=True)
    assert (
        largest_value._largest_sentence(span, nothing, over) == f"It is not known which B from 32 to 4096 fits: {over}"
    )
    assert largest_value._border_text(span, None, None) == ""
    assert largest_value._border_text(span, 64, 128) == "known so far: B=64 fits, B=128 does not"


def test_a_line_through_amounts_of_memory() -> None:
    assert fitted_line([(1, 10), (1, 10), (2, 20)]) is None
    line = fitted_line([(10, 130), (20, 230), (40, 430)])
    assert line is not None
    assert (round(line.slope, 6), round(line.offset, 6), round(line.error, 6)) == (10, 30, 0)


@pytest.mark.parametrize(
    ("steps", "ended_by", "known"), [(20, "SIGINT", True), (2, "SIGTERM", False), (2, "the program", True)]
)
def test_a_run_that_was_cut_short_proves_nothing(
    steps: int, ended_by: Any, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    goals: list[Goal] = []

    def run_trial(setup: TrialSetup, one: Configuration, goal: Goal, *_: object, **__: object) -> Trial:
        goals.append(goal)
        return documents.tried("default", values=dict(one.values), steps=steps, ended_by=ended_by)

    monkeypatch.setattr(largest_value, "run_trial", run_trial)
    setup = trial_setup()
    largest_value.find_largest_value(setup, find_setting("default"), ValueRange("B", 1, 64), None, budget=300)
    found = setup.experiment
    assert found.largest is not None
    assert found.largest.value == (64 if known else None)
    assert ("before B=1 was known to pass" in found.answer.sentence) == (not known)
    # A run that confirms has no fewer steps than one of the search.
    assert all((goal.rule.kind, goal.rule.amount) == ("steps", 20) for goal in goals)


_TORCH = """
import sys, time, torch
from gpuwatch import step
size = int(sys.argv[1])
torch.hold(size << 20)
if size > 77:
    torch.refuse()
for _ in range(30):
    step()
    time.sleep(0.002)
"""


def _torch_program(tmp_path: Path, code: str = _TORCH) -> list[str]:
    script = tmp_path / "train.py"
    script.write_text(code)
    return [sys.executable, str(script), "{SIZE}"]


@pytest.mark.timeout(200)
def test_the_command_says_what_fits(tmp_path: Path) -> None:
    command = _torch_program(tmp_path)
    found = document("--largest", "SIZE=50..200:3", "--", *command, env=with_torch(tmp_path))
    largest = found["largest"]
    assert (largest["value"], largest["first_failing"], largest["confirmed"]) == (77, 80, True)
    assert (largest["asked"], largest["monotonic"], largest["covered"]) == ("default", True, "the whole program")
    assert "SIZE=77 is the largest" in found["answer"]["sentence"]
    assert "SIZE=80 fails 2 of 2" in found["answer"]["sentence"]
    assert [trial["run"]["verdict"] for trial in found["trials"] if trial["values"] == {"SIZE": "80"}] == ["oom"] * 3


_ON_CPU = """
import time, torch
from gpuwatch import step
for _ in range(60):
    step()
    time.sleep(0.005)
"""


@pytest.mark.parametrize(
    ("options", "sentence", "noted"),
    [
        (("--largest", "SIZE=8..64"), "It is not known which SIZE from 8 to 64 fits: SIZE=8 used no GPU", False),
        (("--vary", "SIZE=1,2", "--rounds", "1", "--stop-after", "20steps"), "SIZE=1: ", True),
        (
            ("--copies", "2", "--config", "default", "--stop-after", "20steps"),
            "default: 2 copies run at once on the CPU",
            False,
        ),
    ],
)
def test_a_program_on_the_cpu_fits_no_gpu(options: tuple[str, ...], sentence: str, noted: bool, tmp_path: Path) -> None:
    command = _torch_program(tmp_path, _ON_CPU)
    if "--copies" in options:
        command = command[:-1]
    found = document(*options, "--", *command, env=with_torch(tmp_path))
    assert found["answer"]["sentence"].startswith(sentence)
    assert (found["notes"] == ["No run used a GPU: no NVIDIA driver found."]) is noted
    assert "o NVIDIA driver" in json.dumps(found["answer"]["sentence"]) + json.dumps(found["notes"])


def test_the_report_of_a_search_has_its_values_in_order(tmp_path: Path) -> None:
    result = tried("--largest", "SIZE=70..90:5", "--no-save", "--", *_torch_program(tmp_path), env=with_torch(tmp_path))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("SIZE=75 is the largest")
    assert "● confirmed" in result.stdout
    values = [line.split()[0] for line in result.stdout.splitlines() if line.strip().startswith("SIZE=")]
    assert values[1:] == sorted(values[1:]) == ["SIZE=70", "SIZE=75", "SIZE=80", "SIZE=90"]
    result = tried(
        "--largest", "SIZE=80..90:5", "--no-save", "-q", "--", *_torch_program(tmp_path), env=with_torch(tmp_path)
    )
    assert result.returncode == 4
    assert result.stdout.startswith("Even SIZE=80 does not fit")


def test_an_interrupted_search_says_what_it_knows(tmp_path: Path) -> None:
    command = _torch_program(tmp_path, _TORCH + "if size > 55:\n    open('here', 'w').close()\n    time.sleep(60)\n")
    asked = ("--largest", "SIZE=50..60", "--stop-after", "end", "--no-save", "-q")
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "try", *asked, "--", *command],
        env=with_torch(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    wait_for((tmp_path / "here").exists)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert said.startswith("SIZE=50 fits; larger values ")
    assert process.returncode == 130


def test_another_error_is_no_border(tmp_path: Path) -> None:
    command = _torch_program(tmp_path, _TORCH.replace("torch.refuse()", "raise ValueError('odd size')"))
    result = tried("--largest", "SIZE=50..200", "--no-save", "--", *command, env=with_torch(tmp_path))
    said = " ".join(result.stdout.split())
    assert said.startswith(
        "SIZE=50 fits; larger values are not known; not confirmed: SIZE=100 failed, but not for lack"
    )
    assert "ValueError: odd size" in result.stdout


def test_a_plan_starts_nothing(tmp_path: Path) -> None:
    command = _torch_program(tmp_path, "open('started', 'w')")
    result = tried("--largest", "SIZE=1..1000", "--plan", "--", *command, cwd=tmp_path)
    assert result.returncode == 0
    assert "would run at most" in result.stdout
    assert "from 1 to 1000 (default)" in result.stdout
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    "arguments",
    [("--vary", "SIZE=1,2"), ("--recover",), ("--copies", "2"), ("--config", "growth", "--config", "default")],
)
def test_one_form_at_a_time(arguments: tuple[str, ...], tmp_path: Path) -> None:
    result = tried("--largest", "SIZE=1..9", *arguments, "--", *_torch_program(tmp_path))
    assert result.returncode == 2
    assert "--largest" in result.stderr


_TENSORFLOW = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "1"
import tensorflow as tf
held = tf.zeros([int(sys.argv[1]) << 18])
weights = tf.ones([64, 64])
for _ in range(30):
    weights = tf.matmul(weights, weights)
"""


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not has_cuda_wheel(), reason="no CUDA build of TensorFlow here")
@pytest.mark.parametrize(
    ("tier", "setting", "step"),
    [
        ("driver", "default", 50),
        pytest.param("driver", "growth", 5, marks=pytest.mark.long),
        pytest.param("plugin", "default", 5, marks=pytest.mark.long),
        pytest.param("plugin", "growth", 5, marks=pytest.mark.long),
    ],
)
def test_it_finds_the_border_that_a_loop_by_hand_finds(
    tier: Any, setting: str, step: int, sim_machine: Callable[[str], SimMachine], tmp_path: Path
) -> None:
    environment = sim_machine("1x1GiB").environment(os.environ, tier=tier)
    script = tmp_path / "train.py"
    script.write_text(_TENSORFLOW)
    found = forked_document(
        *("--largest", f"SIZE=300..900:{step}", "--config", setting, "--sim-tier", tier, "--budget", "8min", "--"),
        *(sys.executable, str(script), "{SIZE}"),
        environment=environment,
        timeout=600,
    )
    largest = found["largest"]
    assert largest["confirmed"], (found["answer"], found["notes"])
    own = with_watch_hook({**environment, **({"TF_FORCE_GPU_ALLOW_GROWTH": "true"} if setting == "growth" else {})})
    by_hand = {}
    last, failing = largest["value"], largest["first_failing"]
    assert failing == last + step
    for value in (last, failing):
        if tier == "plugin":  # as a user runs it: in a fork, the plugin's allocator has more room
            code = subprocess.run([sys.executable, str(script), str(value)], env=own, check=False).returncode
        else:
            with forked([str(script), str(value)], own) as done:
                done.communicate()
            code = done.returncode
        by_hand[value] = code == 0
    assert list(by_hand.values()) == [True, False], json.dumps(by_hand)
    assert largest["bytes_per_unit"] == pytest.approx(1 << 20, rel=0.05)
