"""How the budget of ``gpuwatch try`` is shared among runs; with runs that only take time."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from gpuwatch.core.model.try_results import Experiment, Trial
from gpuwatch.experiment.trials import interleaved_rounds
from gpuwatch.experiment.trials.trial import Goal
from gpuwatch.experiment.trials.trial_plan import Configuration, StopRule
from gpuwatch.experiment.trials.trial_settings import find_setting
from gpuwatch.experiment.trials.trial_setup import TrialSetup
from tests.reports import documents
from tests.trials.programs import trial_setup

_SETTINGS = ("default", "growth", "visible=1", "cpu-only")
_START_SECONDS, _END_SECONDS = 12.0, 10.0


def tried_settings(monkeypatch: pytest.MonkeyPatch, *, budget: float, slow: str = "") -> Experiment:
    """Of a program that makes steps after 12 s (under the setting ``slow``: never), and ends 10 s after its signal."""
    clock = SimpleNamespace(now=0.0)

    def run_trial(setup: TrialSetup, configuration: Configuration, goal: Goal, number: int) -> Trial:
        name = configuration.setting.name
        has_steps = name != slow and goal.deadline > _START_SECONDS
        clock.now += goal.deadline + _END_SECONDS
        trial = documents.tried(name, steps=20 if has_steps else None, round=number)
        assert trial.run is not None
        run = msgspec.structs.replace(trial.run, verdict="ok" if has_steps else "timeout")
        return msgspec.structs.replace(trial, run=run)

    monkeypatch.setattr(interleaved_rounds, "run_trial", run_trial)
    monkeypatch.setattr(interleaved_rounds, "time", SimpleNamespace(monotonic=lambda: clock.now))
    setup = trial_setup()
    configurations = [Configuration(find_setting(name)) for name in _SETTINGS]
    rule = StopRule("steps", 20)
    interleaved_rounds.run_in_rounds(setup, configurations, (), rule, rounds=1, budget=budget, share=True)
    return setup.experiment


def test_a_run_has_as_much_time_as_the_others_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less would end it before its first step, as if its setting were to blame."""
    trials = tried_settings(monkeypatch, budget=60).trials
    assert [(trial.asked, trial.steps) for trial in trials if not trial.not_tried] == [("default", 20), ("growth", 20)]


def test_a_run_without_steps_beside_others_with_steps_had_too_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tried_settings(monkeypatch, budget=400, slow="growth").notes == (
        "Stopped before the first step under growth: a larger --budget gives it more time.",
    )
    (none_counted,) = tried_settings(monkeypatch, budget=20).notes
    assert none_counted.startswith("No step could be counted: ")
