"""After an out-of-memory failure: which setting makes the program pass (``--recover``)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

from gpuwatch.core.formatting.sentences import name_list
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Device
from gpuwatch.core.model.try_results import Answer, Experiment, Recovery, Trial
from gpuwatch.experiment.trials.trial import Goal, handled_oom, run_trial
from gpuwatch.experiment.trials.trial_plan import Configuration, StopRule
from gpuwatch.experiment.trials.trial_results import PASSED_VERDICTS, out_of_budget_reason, why_failed
from gpuwatch.experiment.trials.trial_settings import TrialSetting, find_setting, why_not_simulated
from gpuwatch.experiment.trials.trial_setup import TrialSetup

RULE_TEXT = "to its end, or past three times the step at which it failed"
VERIFICATION_RUNS = 2
"""Further runs of what passed, before it is called verified."""
_FAILURE_MULTIPLE = 3
"""How many times the step (or the seconds) of the failure a run must get past."""
_MIN_STEPS = 20
_MAX_LIMIT_SHARE = 0.95
"""Share of the card that growth may take with a limit: the rest is for contexts and libraries."""
_MIB = 1 << 20
_SETTINGS_BY_FRAMEWORK: dict[str, tuple[str, ...]] = {
    "tensorflow": ("growth", "async-allocator", "mixed-float16"),
    "torch": ("expandable-segments",),
    "jax": ("no-preallocate", "platform-allocator"),
}


def find_recovery(setup: TrialSetup, *, budget: float, share: bool) -> None:
    """Runs the program until it runs out of memory, then with each setting that might help.

    A setting that passes, to the end of the program or past three times the step at which it failed, is run twice more.
    The first that passes all three is the answer, and the rest is not tried; nor is what the cause rules out.
    """
    setup.experiment.rule = RULE_TEXT
    with setup.until_interrupted():
        _recover(setup, setup.experiment, budget, share=share)
    if setup.interrupted is not None:
        setup.experiment.answer = Answer(sentence="Interrupted: no setting has been verified yet")


def _recover(setup: TrialSetup, experiment: Experiment, budget: float, *, share: bool) -> None:
    started_at = time.monotonic()
    first = run_trial(setup, Configuration(find_setting("default")), Goal(StopRule("end"), deadline=budget / 2))
    seconds = time.monotonic() - started_at
    experiment.trials += (first,)
    run = first.run
    assert run is not None
    if run.verdict != "oom":
        experiment.answer = Answer(sentence=_no_oom_sentence(first))
        return
    stop_rule = _stop_rule(first, seconds)
    working_setting: TrialSetting | None = None
    for setting, reason in _candidate_settings(setup, run, share=share):
        remaining = started_at + budget - time.monotonic()
        if not reason and working_setting is not None:
            reason = f"not needed: {working_setting.name} is enough"
        elif not reason and remaining < seconds:
            reason = out_of_budget_reason(budget)
        if reason:
            experiment.recover += (Recovery(name=setting.name, reason=reason),)
            continue
        recovery = _try_setting(setup, setting, Goal(stop_rule, deadline=remaining))
        experiment.recover += (recovery,)
        working_setting = setting if recovery.verified else None
    experiment.answer = _recovery_answer(first, run, experiment, working_setting)


def _no_oom_sentence(trial: Trial) -> str:
    run = trial.run
    assert run is not None
    if handled_oom(run):
        return "It runs out of memory, but handles that and continues: there is nothing to recover"
    if run.verdict in PASSED_VERDICTS:
        return "It does not run out of memory: there is nothing to recover"
    if run.verdict == "timeout":
        return f"It did not run out of memory: {why_failed(run)}"
    return f"It fails, but not for lack of GPU memory: {why_failed(run)}"


def _stop_rule(first: Trial, seconds: float) -> StopRule:
    """Past three times the step of the failure; in a program without counted steps, past three times its seconds."""
    if first.counted and not _has_several_processes(first):
        return StopRule("steps", max(_FAILURE_MULTIPLE * (first.steps or 0), _MIN_STEPS))
    return StopRule("seconds", _FAILURE_MULTIPLE * seconds)


def _has_several_processes(trial: Trial) -> bool:
    """Whether several processes use the framework: the steps are those of one of them, perhaps not of the failing."""
    return trial.run is not None and len(trial.run.processes) > 1


# -- what might help ------------------------------------------------------------------------------


def _candidate_settings(setup: TrialSetup, run: Run, *, share: bool) -> Iterator[tuple[TrialSetting, str]]:
    """The settings that might help, the likeliest first, each with why it cannot; empty if it can."""
    framework = run.framework.name if run.framework is not None else ""
    names = list(_SETTINGS_BY_FRAMEWORK.get(framework, ()))
    total_bytes = run.memory.device_total_bytes
    if framework == "tensorflow" and total_bytes:
        names.insert(1, f"grow-to-limit={int(_MAX_LIMIT_SHARE * total_bytes) // _MIB}MiB")
    if run.primary == "memory.fragmented":
        names.sort(key=lambda name: name not in ("async-allocator", "expandable-segments"))
    settings: list[TrialSetting] = [find_setting(name) for name in names]
    settings[0:0] = _other_gpus(setup, run)  # costs nothing, neither speed nor precision
    for setting in settings:
        reason = why_not_simulated(setting, setup.simulation) or _why_ruled_out(setting, run, setup)
        yield setting, reason or ("" if share else setup.why_in_use(setting))


def _other_gpus(setup: TrialSetup, run: Run) -> list[TrialSetting]:
    """Each GPU with more free memory than the one on which it failed, the emptiest first."""
    if setup.machine is None or len(setup.machine.devices) < 2 or "CUDA_VISIBLE_DEVICES" in os.environ:
        return []
    free_here = _free_bytes(setup.machine.device(run.memory.device_uuid))
    others = [device for device in setup.machine.devices if _free_bytes(device) > free_here]
    others.sort(key=lambda device: -_free_bytes(device))
    return [find_setting(f"visible={device.index}") for device in others]


def _free_bytes(device: Device | None) -> float:
    return 0.0 if device is None else device.number("memory.free_bytes") or 0.0


def _why_ruled_out(setting: TrialSetting, run: Run, setup: TrialSetup) -> str:
    """Why this setting cannot help here; empty if it might."""
    oom = max(run.ooms, key=lambda oom: oom.requested_bytes or 0, default=None)
    if oom is None or oom.requested_bytes is None:
        return ""
    reachable = _reachable_gpus(setting, run, setup)
    total_bytes = max((device.number("memory.total_bytes") or 0.0 for device in reachable), default=0.0)
    divisor = 2 if setting.name == "mixed-float16" else 1
    if total_bytes and oom.requested_bytes / divisor > total_bytes:
        return f"one tensor requests {size(oom.requested_bytes)}, and the card has {size(total_bytes)}"
    return ""


def _reachable_gpus(setting: TrialSetting, run: Run, setup: TrialSetup) -> Sequence[Device]:
    """The GPU that the setting chooses, else the one on which it failed; all of them if that is unknown."""
    if setup.machine is None:
        return ()
    gpu_index = setting.variables.get("CUDA_VISIBLE_DEVICES")
    if gpu_index is not None:
        return [device for device in setup.machine.devices if str(device.index) == gpu_index]
    device = setup.machine.device(run.memory.device_uuid)
    return setup.machine.devices if device is None else (device,)


# -- trying ---------------------------------------------------------------------------------------


def _try_setting(setup: TrialSetup, setting: TrialSetting, goal: Goal) -> Recovery:
    """Runs it once, and twice more if it passes."""
    passed = 0
    for round_number in range(1, 2 + VERIFICATION_RUNS):
        trial = run_trial(setup, Configuration(setting), goal, round_number)
        setup.experiment.trials += (trial,)
        run = trial.run
        assert run is not None
        if trial.overridden or trial.not_tried:
            reason = f"the program sets this itself (at {trial.overridden})" if trial.overridden else trial.not_tried
            return Recovery(name=setting.name, reason=reason)
        if run.verdict not in PASSED_VERDICTS:
            return Recovery(name=setting.name, passed=passed, runs=round_number, reason=_failure_text(setting, run))
        passed += 1
    return Recovery(name=setting.name, passed=passed, runs=passed, verified=True)


def _failure_text(setting: TrialSetting, run: Run) -> str:
    """Why it did not pass. A limit that was tried is nearly the whole card: it is not what is too small."""
    limit_mib, total_bytes = setting.options.get("memory_limit"), run.memory.device_total_bytes
    if run.verdict == "oom" and limit_mib and total_bytes:
        return f"out of memory with {size(limit_mib * _MIB)} of the card's {size(total_bytes)}"
    return why_failed(run)


def _recovery_answer(first: Trial, run: Run, experiment: Experiment, working_setting: TrialSetting | None) -> Answer:
    where_failed = f" at step {first.steps}" if first.steps else " before its first step"
    where_failed = "" if _has_several_processes(first) else where_failed
    if working_setting is not None:
        last_trial = experiment.trials[-1]
        last_run = last_trial.run
        peak_bytes = last_run.memory.nvml_peak_bytes if last_run is not None and last_run.device_map else None
        memory_text = f" in {size(peak_bytes)}" if peak_bytes else ""
        how_far = f"past {_FAILURE_MULTIPLE} times the time at which it failed"
        how_far = f"past step {last_trial.steps}" if last_trial.steps else how_far
        how_far = "to its end" if last_trial.ended_by == "the program" else how_far
        results_note = ", but changes results" if working_setting.changes_results else ""
        verified = f"verified {VERIFICATION_RUNS} of {VERIFICATION_RUNS}"
        sentence = (
            f"{working_setting.name} makes it pass{memory_text}, {how_far}, {verified}{results_note};"
            f" as it is, it runs out of memory{where_failed}"
        )
        return Answer(sentence=sentence, best=working_setting.name, code=working_setting.code_lines)
    partial_passes = [
        f"{recovery.name} passed {recovery.passed} of {recovery.runs} runs"
        for recovery in experiment.recover
        if recovery.passed
    ]
    tried_names = [recovery.name for recovery in experiment.recover if recovery.runs]
    outcome = f"{name_list(tried_names)} did not help" if tried_names else "no setting can help"
    main_finding = next((finding for finding in run.findings if finding.id == run.primary), None)
    action_text = f". {main_finding.action}" if main_finding is not None and main_finding.action else ""
    return Answer(
        sentence="; ".join([f"It runs out of memory{where_failed}: {outcome}", *partial_passes]).rstrip(".")
        + action_text.rstrip(".")
    )
