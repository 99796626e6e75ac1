"""What ``gpuwatch try`` shows while it runs."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from gpuwatch.cli import trial_progress
from gpuwatch.core.model.run_memory import Memory
from gpuwatch.core.model.try_results import StepTime, Trial
from gpuwatch.experiment.trials.trial_setup import StartedTrial
from tests.diagnosis.cases import GIB, draft

TIME = StepTime(median_seconds=0.1, low_seconds=0.09, high_seconds=0.11, timed=20)


def trial(name: str = "growth", verdict: Any = "ok", **fields: Any) -> Trial:
    run = draft("run", verdict=verdict, memory=Memory(nvml_peak_bytes=2 * GIB))
    return Trial(asked=name, round=1, run=run, steps=20, step_time=TIME, **fields)


def begun(number: int, **fields: Any) -> StartedTrial:
    return StartedTrial(name="growth", number=number, planned_count=6, round=1, **fields)


def test_a_line_for_each_trial_where_stderr_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(trial_progress.time, "monotonic", lambda: now[0])
    told = trial_progress.make_progress(600, quiet=False, simulated=False)
    for number in (1, 2):
        told.show_start(begun(number))
        now[0] += 10.0
        told.show_end(trial("limit=6GiB", values={"B": "32"}) if number == 2 else trial())
    told.close()
    assert capsys.readouterr().err.splitlines() == [
        "gpuwatch: 1/6 growth, round 1: ok, 20 steps, 10.0 steps/s, 2.0 GiB (10 s; about 50 s left)",
        "gpuwatch: 2/6 limit=6GiB B=32, round 1: ok, 20 steps, 10.0 steps/s, 2.0 GiB (10 s; about 40 s left)",
    ]


def test_nothing_is_said_with_quiet_and_no_speed_of_simulated_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = trial_progress.make_progress(600, quiet=True, simulated=False)
    quiet.show_start(begun(1))
    quiet.show_end(trial())
    assert capsys.readouterr().err == ""
    assert trial_progress.trial_result(trial(), simulated=True) == ("ok", "20", "", "2.0 GiB")
    assert trial_progress.trial_result(Trial(asked="xla", not_tried="no"), simulated=True) == ("not tried", "", "", "")
    assert trial_progress.trial_name(trial(copy=2)) == "growth, copy 2, round 1"
    assert trial_progress.trial_name(trial(recorded=True)) == "growth, recording its memory"


@pytest.mark.parametrize("size", [(80, 24), (40, 6)])
def test_a_terminal_has_a_table_that_fits(size: tuple[int, int]) -> None:
    told = trial_progress._TableProgress(60, simulated=False)
    width, height = size
    told.console = Console(file=io.StringIO(), width=width, height=height)
    for number in range(1, 31):
        told.show_start(begun(number))
        told.show_steps(7)
        told.show_note("known so far: B=64 fits")
        assert told.live is not None
        told.console.print(told.renderable())
        told.show_end(trial())
        assert told.live is None
    drawn = told.console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, drawn)) <= width - trial_progress._SPARE_COLUMNS
    assert any("30/6 growth, round 1: 7 steps"[: width // 2] in line for line in drawn)
    last = max(index for index, line in enumerate(drawn) if line.startswith("RUN"))
    assert len(drawn[last:]) < height
    assert "known so far" in drawn[-1]
    told.close()
