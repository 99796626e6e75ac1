"""Runs the program once as it is, a short pilot, then every configuration in interleaved rounds (A B C A B C).

The pilot shows which framework the program loads, and how long a run takes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.formatting.sentences import name_list
from gpuwatch.core.model.try_results import Answer, Experiment, Trial
from gpuwatch.experiment.trials.settings_comparison import compare_settings
from gpuwatch.experiment.trials.trial import Goal, handled_oom, ran_on_cpu, run_trial, why_on_cpu
from gpuwatch.experiment.trials.trial_plan import MAX_SECONDS_TO_STEADY, MIN_STEP_SECONDS, Configuration, StopRule
from gpuwatch.experiment.trials.trial_results import PASSED_VERDICTS, out_of_budget_reason, skipped_trial, why_failed
from gpuwatch.experiment.trials.trial_settings import find_setting
from gpuwatch.experiment.trials.trial_setup import TrialSetup

_PILOT_STEPS = 10
_NO_STEPS_ON_GPU_SECONDS = 10.0
"""A run that uses a GPU and counts no step is ended after this time."""
_NO_STEPS_SECONDS = 60.0
"""Any run that counts no step is ended after this time."""
_MIN_TRIAL_SECONDS = 10.0
"""Seconds that a trial has at least, however short the budget is."""


@dataclass(frozen=True, slots=True)
class PilotRun:
    """What the pilot run showed."""

    trial: Trial
    seconds: float
    """Seconds from the start to the end of the program, for a few steps."""

    @property
    def frameworks(self) -> frozenset[str]:
        """The frameworks that the program and its processes loaded."""
        run = self.trial.run
        if run is None:
            return frozenset()
        frameworks = (run.framework, *(process.framework for process in run.processes))
        return frozenset(framework.name for framework in frameworks if framework is not None)

    @property
    def failed(self) -> bool:
        """Whether the program failed as it is, for a reason that no setting of memory or devices can change."""
        return self.trial.run is not None and self.trial.run.verdict == "error"

    @property
    def on_cpu(self) -> bool:
        """Whether the program used no GPU although it has a framework that could, so that no setting matters."""
        return self.trial.run is not None and self.trial.run.verdict == "fallback" and ran_on_cpu(self.trial.run)

    def run_seconds(self, stop_rule: StopRule) -> tuple[float, float] | None:
        """Seconds that a run takes, at least and at most; None if that is not known before."""
        trial = self.trial
        if trial.ended_by == "the program":
            return self.seconds, self.seconds
        if not trial.steps and stop_rule.uncounted_seconds is not None:
            return (self.seconds + stop_rule.uncounted_seconds - _NO_STEPS_ON_GPU_SECONDS,) * 2
        step_seconds = trial.step_time.median_seconds if trial.step_time is not None else None
        match stop_rule.kind:
            case "steps":
                return None if step_seconds is None else (self.seconds + stop_rule.amount * step_seconds,) * 2
            case "seconds":
                return (self.seconds + stop_rule.amount,) * 2
            case "steady":
                return self.seconds + MIN_STEP_SECONDS, self.seconds + MAX_SECONDS_TO_STEADY
            case _:
                return None


def run_pilot(setup: TrialSetup, budget: float) -> PilotRun:
    """Starts the program as it is and ends it after its first steps. Raises as :func:`run_trial` does."""
    started_at = time.monotonic()
    rule = StopRule("steps", _PILOT_STEPS, uncounted_seconds=_NO_STEPS_ON_GPU_SECONDS)
    goal = Goal(rule, deadline=min(_NO_STEPS_SECONDS, budget))
    trial = run_trial(setup, Configuration(find_setting("default")), goal, 0)
    return PilotRun(trial, time.monotonic() - started_at)


def run_in_rounds(
    setup: TrialSetup,
    configurations: Sequence[Configuration],
    not_tried: Sequence[Trial],
    rule: StopRule,
    *,
    rounds: int,
    budget: float,
    share: bool,
    memory: bool = False,
) -> None:
    """Runs each configuration once a round. ``budget``: seconds in all; rounds are dropped first, then configurations.

    ``memory``: after the first round, each is run once more, with the framework's recorder of memory on.

    The first run that reaches ``rule`` sets the number of steps of all others. A configuration that failed, or that
    the program overrides, is not run again; nor, without ``share``, one on a GPU that others use. An interruption
    (Ctrl+C) ends it; what is known so far is returned. ``not_tried``: settings that cannot be tried here.
    """
    experiment, unoccupied = setup.experiment, []
    for configuration in configurations:
        if not share and (in_use := setup.why_in_use(configuration.setting)):
            experiment.trials += (skipped_trial(configuration, in_use),)
        else:
            unoccupied.append(configuration)
    setup.started_count, setup.planned_count = 0, len(unoccupied) * (rounds + memory)
    with setup.until_interrupted():
        _run_rounds(setup, unoccupied, rule, rounds=rounds, budget=budget, memory=memory)
    variables = {name for configuration in configurations for name in configuration.setting.variables}
    inherited = sorted(variables & os.environ.keys())
    if inherited and any(not configuration.setting.variables for configuration in configurations):
        are = "is" if len(inherited) == 1 else "are"
        experiment.notes += (f"{', '.join(inherited)} {are} set in this environment: default has it too.",)
    recovered = list(dict.fromkeys(trial.name for trial in experiment.trials if trial.run and handled_oom(trial.run)))
    if recovered:
        experiment.notes += (f"Memory ran out under {name_list(recovered)}; the program handled that and continued.",)
    if any(map(_others_used_gpus, experiment.trials)):
        note = "Other programs used the GPU meanwhile: free memory and speed may have changed between runs."
        experiment.notes += (note,)
    stepless = [
        trial
        for trial in experiment.trials
        if trial.run is not None
        and trial.run.verdict != "interrupted"
        and trial.ended_by not in ("the program", "success")
        and not trial.steps
    ]
    if stepless and any(trial.steps for trial in experiment.trials):
        stopped = dict.fromkeys(trial.name for trial in stepless if trial.run and trial.run.verdict == "timeout")
        if stopped:
            names = name_list(list(stopped))
            experiment.notes += (f"Stopped before the first step under {names}: a larger --budget gives it more time.",)
    elif stepless:
        experiment.notes += (
            "No step could be counted: give a time (--stop-after 60s), or call gpuwatch.step() in it.",
        )
    passed = [trial.run for trial in experiment.trials if trial.run and trial.run.verdict in PASSED_VERDICTS]
    if passed and all(map(ran_on_cpu, passed)):
        experiment.notes += (f"No run used a GPU: {why_on_cpu(passed[0])}.",)
    experiment.trials += tuple(not_tried)
    experiment.answer = compare_settings(
        experiment.trials, {configuration.setting.name: configuration.setting.code for configuration in configurations}
    )


def _ran_under_setting(trial: Trial) -> bool:
    """Whether the program ran under the setting that was requested."""
    return not trial.overridden and not trial.not_tried


def _others_used_gpus(trial: Trial) -> bool:
    """Whether other programs held memory on the program's GPUs."""
    run = trial.run
    uuids = {mapping.uuid for mapping in run.device_map} if run is not None else set()
    return run is not None and any(device.others_peak_bytes and device.uuid in uuids for device in run.memory.devices)


def conclude_from_pilot(experiment: Experiment, pilot: Trial) -> None:
    """The answer if the program fails as it is, or uses no GPU."""
    assert pilot.run is not None
    problem = "does not use a GPU" if pilot.run.verdict in PASSED_VERDICTS else "fails as it is"
    sentence = f"It {problem}, so no setting was tried: {why_failed(pilot.run)}"
    experiment.trials, experiment.answer = (replace(pilot, round=1),), Answer(sentence=sentence)


def _run_rounds(
    setup: TrialSetup,
    configurations: Sequence[Configuration],
    rule: StopRule,
    *,
    rounds: int,
    budget: float,
    memory: bool,
) -> None:
    experiment, steps = setup.experiment, None
    budget_ends_at = time.monotonic() + budget
    durations: dict[str, float] = {}
    runnable = list(configurations)
    for number in range(1, rounds + 1):
        expected_seconds = sum(durations.get(configuration.name, 0.0) for configuration in runnable)
        if number > 1 and time.monotonic() + expected_seconds > budget_ends_at:
            experiment.notes += (
                f"{number - 1} of {rounds} rounds: another would take {hours_minutes(expected_seconds)}, which is more"
                f" than is left of --budget {hours_minutes(budget)}.",
            )
            break
        next_round: list[Configuration] = []
        for index, configuration in enumerate(runnable):
            remaining = budget_ends_at - time.monotonic()
            mean_seconds = sum(durations.values()) / len(durations) if durations else 0.0
            if number == 1 and index and mean_seconds > remaining:
                experiment.trials += tuple(
                    skipped_trial(other, out_of_budget_reason(budget)) for other in runnable[index:]
                )
                break
            # Less than the others took would end most programs before their first step.
            seconds_each = max(remaining / (len(runnable) - index), mean_seconds) if number == 1 else remaining
            deadline = max(remaining if rule.kind == "end" else seconds_each, _MIN_TRIAL_SECONDS)
            started_at = time.monotonic()
            trial = run_trial(setup, configuration, Goal(rule, steps, deadline), number)
            durations[configuration.name] = time.monotonic() - started_at
            experiment.trials += (trial,)
            passed = trial.run is not None and trial.run.verdict in PASSED_VERDICTS
            if passed and steps is None and trial.ended_by not in ("the program", "success"):
                steps = trial.steps  # this one sets those of all others
            if passed and _ran_under_setting(trial):
                next_round.append(configuration)
        experiment.rounds = number
        if memory and number == 1:
            _record_memory_of_each(setup, configurations, rule, steps, budget_ends_at)
        runnable = next_round
        if not runnable:
            break


def _record_memory_of_each(
    setup: TrialSetup, configurations: Sequence[Configuration], rule: StopRule, steps: int | None, budget_ends_at: float
) -> None:
    """Runs each configuration that the first round has shown to be there once more, with the recorder on."""
    experiment, unrecorded = setup.experiment, []
    for configuration in configurations:
        first_trial = next((trial for trial in experiment.trials if trial.name == configuration.name), None)
        if (
            first_trial is None
            or first_trial.run is None
            or first_trial.run.verdict not in (*PASSED_VERDICTS, "oom")
            or not _ran_under_setting(first_trial)
        ):
            continue
        remaining = budget_ends_at - time.monotonic()
        if remaining < _MIN_TRIAL_SECONDS:
            unrecorded.append(configuration.name)
            continue
        goal = Goal(rule, steps, remaining)
        experiment.trials += (run_trial(setup, configuration, goal, record=True),)
    if unrecorded:
        experiment.notes += (f"No time was left within --budget to record the memory of {name_list(unrecorded)}.",)
