"""Runs every configuration in interleaved rounds (A B C A B C), within a budget of time."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from msgspec.structs import replace

from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.model.try_results import Answer, Trial
from gpuwatch.experiment.trials.gpus_in_use import why_in_use
from gpuwatch.experiment.trials.settings_comparison import answer, listed, why_failed
from gpuwatch.experiment.trials.trial import Goal, handled_oom, run_trial
from gpuwatch.experiment.trials.trial_plan import Configuration, Rule
from gpuwatch.experiment.trials.trial_setup import TrialSetup
from gpuwatch.experiment.trials.trial_summary import PASSED
from gpuwatch.experiment.trials.try_result import TryResult, out_of_budget, trial_not_run

_MIN_TRIAL_SECONDS = 10.0
"""Seconds that a trial has at least, however short the budget is."""


def run_in_rounds(
    setup: TrialSetup,
    chosen: Sequence[Configuration],
    not_tried: Sequence[Trial],
    rule: Rule,
    *,
    rounds: int,
    budget: float,
    share: bool,
    memory: bool = False,
) -> TryResult:
    """Runs each configuration once a round. ``budget``: seconds in all; rounds are dropped first, then configurations.

    ``memory``: after the first round, each is run once more, with the framework's recorder of memory on.

    The first run that reaches ``rule`` sets the number of steps of all others. A configuration that failed, or that
    the program overrides, is not run again; nor, without ``share``, one on a GPU that others use. An interruption
    (Ctrl+C) ends it; what is known so far is returned. ``not_tried``: settings that cannot be tried here.
    """
    found = TryResult()
    free = []
    for configuration in chosen:
        if not share and (in_use := why_in_use(setup, configuration.setting)):
            found.trials.append(trial_not_run(configuration, in_use))
        else:
            free.append(configuration)
    setup.made, setup.planned = 0, len(free) * (rounds + memory)
    with found.until_interrupted():
        _run_rounds(setup, free, rule, found, rounds=rounds, budget=budget, memory=memory)
    inherited = sorted(
        {name for configuration in chosen for name in configuration.setting.variables if name in os.environ}
    )
    if inherited and any(not configuration.setting.variables for configuration in chosen):
        verb = "is" if len(inherited) == 1 else "are"
        found.notes.append(f"{', '.join(inherited)} {verb} set in this environment: default has it too.")
    handled = dict.fromkeys(trial.name for trial in found.trials if trial.run and handled_oom(trial.run))
    if handled:
        found.notes.append(f"Memory ran out under {listed(list(handled))}; the program handled that and continued.")
    if any(_shared(trial) for trial in found.trials):
        found.notes.append(
            "Other programs used the GPU meanwhile: free memory and speed may have changed between runs."
        )
    if any(
        trial.run is not None
        and trial.run.verdict != "interrupted"
        and trial.ended_by not in ("the program", "success")
        and not trial.steps
        for trial in found.trials
    ):
        found.notes.append("No step could be counted: give a time (--stop-after 60s), or call gpuwatch.step() in it.")
    found.trials += not_tried
    found.answer = answer(
        found.trials, {configuration.setting.name: configuration.setting.code for configuration in chosen}
    )
    return found


def _shows_setting(trial: Trial) -> bool:
    """Whether the program ran under the setting that was requested."""
    return not trial.overridden and not trial.not_tried


def _shared(trial: Trial) -> bool:
    """Whether other programs held memory on the program's GPUs."""
    run = trial.run
    used = {mapping.uuid for mapping in run.device_map} if run is not None else set()
    return run is not None and any(device.others_peak_bytes and device.uuid in used for device in run.memory.devices)


def why_no_rounds(start: Trial) -> TryResult:
    """What there is to say if the program fails as it is, or uses no GPU."""
    assert start.run is not None
    what = "does not use a GPU" if start.run.verdict in PASSED else "fails as it is"
    sentence = f"It {what}, so no setting was tried: {why_failed(start.run)}"
    return TryResult(trials=[replace(start, round=1)], answer=Answer(sentence=sentence))


def _run_rounds(
    setup: TrialSetup,
    chosen: Sequence[Configuration],
    rule: Rule,
    found: TryResult,
    *,
    rounds: int,
    budget: float,
    memory: bool,
) -> None:
    until = time.monotonic() + budget
    durations: dict[str, float] = {}
    left = list(chosen)
    for number in range(1, rounds + 1):
        expected = sum(durations.get(configuration.name, 0.0) for configuration in left)
        if number > 1 and time.monotonic() + expected > until:
            found.notes.append(
                f"{number - 1} of {rounds} rounds: another would take {hours_minutes(expected)}, more than is left"
                f" of --budget {hours_minutes(budget)}."
            )
            break
        again: list[Configuration] = []
        for index, configuration in enumerate(left):
            remaining = until - time.monotonic()
            mean = sum(durations.values()) / len(durations) if durations else 0.0
            if number == 1 and index and mean > remaining:
                found.trials += [trial_not_run(other, out_of_budget(budget)) for other in left[index:]]
                break
            share = remaining / (len(left) - index) if number == 1 else remaining
            deadline = max(remaining if rule.kind == "end" else share, _MIN_TRIAL_SECONDS)
            began = time.monotonic()
            trial = run_trial(setup, configuration, Goal(rule, found.steps, deadline), number)
            durations[configuration.name] = time.monotonic() - began
            found.trials.append(trial)
            passed = trial.run is not None and trial.run.verdict in PASSED
            if passed and found.steps is None and trial.ended_by not in ("the program", "success"):
                found.steps = trial.steps
            if passed and _shows_setting(trial):
                again.append(configuration)
        found.rounds = number
        if memory and number == 1:
            _record_each(setup, chosen, rule, found, until)
        left = again
        if not left:
            break


def _record_each(
    setup: TrialSetup, chosen: Sequence[Configuration], rule: Rule, found: TryResult, until: float
) -> None:
    """Runs each configuration that the first round has shown to be there once more, with the recorder on."""
    late = []
    for configuration in chosen:
        first = next((trial for trial in found.trials if trial.name == configuration.name), None)
        if first is None or first.run is None or first.run.verdict not in (*PASSED, "oom") or not _shows_setting(first):
            continue
        left = until - time.monotonic()
        if left < _MIN_TRIAL_SECONDS:
            late.append(configuration.name)
            continue
        goal = Goal(rule, found.steps, left)
        found.trials.append(run_trial(setup, configuration, goal, record=True))
    if late:
        found.notes.append(f"No time was left within --budget to record the memory of {listed(late)}.")
