"""After an out-of-memory failure: which setting makes the program pass (``--recover``)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

from gpuwatch.core.formatting.sentences import name_list
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Device
from gpuwatch.core.model.try_results import Answer, Recovery, Trial
from gpuwatch.experiment.trials.gpus_in_use import why_in_use
from gpuwatch.experiment.trials.trial import Goal, handled_oom, run_trial
from gpuwatch.experiment.trials.trial_plan import Configuration, Rule
from gpuwatch.experiment.trials.trial_settings import Setting, setting_named, why_not_simulated
from gpuwatch.experiment.trials.trial_setup import TrialSetup
from gpuwatch.experiment.trials.trial_summary import PASSED, why_failed
from gpuwatch.experiment.trials.try_result import TryResult, out_of_budget

RULE = "to its end, or past three times the step at which it failed"
VERIFYING_RUNS = 2
"""Further runs of what passed, before it is called verified."""
_FAILURE_MULTIPLE = 3
"""How many times the step (or the seconds) of the failure a run must get past."""
_MIN_STEPS = 20
_MAX_LIMIT_SHARE = 0.95
"""Share of the card that growth may take with a limit: the rest is for contexts and libraries."""
_MIB = 1 << 20
_WAYS: dict[str, tuple[str, ...]] = {
    "tensorflow": ("growth", "async-allocator", "mixed-float16"),
    "torch": ("expandable-segments",),
    "jax": ("no-preallocate", "platform-allocator"),
}


def find_recovery(setup: TrialSetup, *, budget: float, share: bool) -> TryResult:
    """Runs the program until it runs out of memory, then with each setting that might help.

    A setting that passes, to the end of the program or past three times the step at which it failed, is run twice more.
    The first that passes all three is the answer, and the rest is not tried; nor is what the cause rules out.
    """
    found = TryResult(rule=RULE)
    until = time.monotonic() + budget
    with found.until_interrupted():
        _recover(setup, found, until, budget, share=share)
    if found.interrupted is not None:
        found.answer = Answer(sentence="Interrupted: no setting has been verified yet")
    return found


def _recover(setup: TrialSetup, found: TryResult, until: float, budget: float, *, share: bool) -> None:
    began = time.monotonic()
    first = run_trial(setup, Configuration(setting_named("default")), Goal(Rule("end"), deadline=budget / 2))
    seconds = time.monotonic() - began
    found.trials.append(first)
    run = first.run
    assert run is not None
    if run.verdict != "oom":
        found.answer = Answer(sentence=_no_oom(first))
        return
    rule = _rule(first, seconds)
    best: Setting | None = None
    for way, reason in _candidate_settings(setup, run, share=share):
        if reason:
            found.recoveries.append(Recovery(name=way.name, reason=reason))
        elif best is not None:
            found.recoveries.append(Recovery(name=way.name, reason=f"not needed: {best.name} is enough"))
        elif until - time.monotonic() < seconds:
            found.recoveries.append(Recovery(name=way.name, reason=out_of_budget(budget)))
        else:
            goal = Goal(rule, deadline=max(until - time.monotonic(), seconds))
            recovery = _try_setting(setup, way, goal, found.trials)
            found.recoveries.append(recovery)
            best = way if recovery.verified else None
    found.answer = _answer(first, run, found, best)


def _no_oom(trial: Trial) -> str:
    run = trial.run
    assert run is not None
    if handled_oom(run):
        return "It runs out of memory, but handles that and continues: there is nothing to recover"
    if run.verdict in PASSED:
        return "It does not run out of memory: there is nothing to recover"
    if run.verdict == "timeout":
        return f"It did not run out of memory: {why_failed(run)}"
    return f"It fails, but not for lack of GPU memory: {why_failed(run)}"


def _rule(first: Trial, seconds: float) -> Rule:
    """Past three times the step of the failure; in a program without counted steps, past three times its seconds."""
    if first.counted and not _has_several_processes(first):
        return Rule("steps", max(_FAILURE_MULTIPLE * (first.steps or 0), _MIN_STEPS))
    return Rule("seconds", _FAILURE_MULTIPLE * seconds)


def _has_several_processes(trial: Trial) -> bool:
    """Whether several processes use the framework: the steps are those of one of them, perhaps not of the failing."""
    return trial.run is not None and len(trial.run.processes) > 1


# -- what might help ------------------------------------------------------------------------------


def _candidate_settings(setup: TrialSetup, run: Run, *, share: bool) -> Iterator[tuple[Setting, str]]:
    """The settings that might help, the likeliest first, each with why it cannot; empty if it can."""
    framework = run.framework.name if run.framework is not None else ""
    names = list(_WAYS.get(framework, ()))
    total = run.memory.device_total_bytes
    if framework == "tensorflow" and total:
        names.insert(1, f"grow-to-limit={int(_MAX_LIMIT_SHARE * total) // _MIB}MiB")
    if run.primary == "memory.fragmented":
        names.sort(key=lambda name: name not in ("async-allocator", "expandable-segments"))
    ways: list[Setting] = [setting_named(name) for name in names]
    ways[0:0] = _other_gpus(setup, run)  # costs nothing, neither speed nor precision
    for way in ways:
        reason = why_not_simulated(way, setup.simulation) or _why_ruled_out(way, run, setup)
        yield way, reason or ("" if share else why_in_use(setup, way))


def _other_gpus(setup: TrialSetup, run: Run) -> list[Setting]:
    """Each GPU with more free memory than the one on which it failed, the emptiest first."""
    if setup.machine is None or len(setup.machine.devices) < 2 or "CUDA_VISIBLE_DEVICES" in os.environ:
        return []
    here = _free_bytes(setup.machine.device(run.memory.device_uuid))
    others = [device for device in setup.machine.devices if _free_bytes(device) > here]
    others.sort(key=lambda device: -_free_bytes(device))
    return [setting_named(f"visible={device.index}") for device in others]


def _free_bytes(device: Device | None) -> float:
    return 0.0 if device is None else device.number("memory.free_bytes") or 0.0


def _why_ruled_out(setting: Setting, run: Run, setup: TrialSetup) -> str:
    """Why this setting cannot help here; empty if it might."""
    oom = max(run.ooms, key=lambda oom: oom.requested_bytes or 0, default=None)
    if oom is None or oom.requested_bytes is None:
        return ""
    reachable = _reachable_gpus(setting, run, setup)
    total = max((device.number("memory.total_bytes") or 0.0 for device in reachable), default=0.0)
    halved = 2 if setting.name == "mixed-float16" else 1
    if total and oom.requested_bytes / halved > total:
        return f"one tensor requests {size(oom.requested_bytes)}, and the card has {size(total)}"
    return ""


def _reachable_gpus(setting: Setting, run: Run, setup: TrialSetup) -> Sequence[Device]:
    """The GPU that the setting chooses, else the one on which it failed; all of them if that is unknown."""
    if setup.machine is None:
        return ()
    number = setting.variables.get("CUDA_VISIBLE_DEVICES")
    if number is not None:
        return [device for device in setup.machine.devices if str(device.index) == number]
    device = setup.machine.device(run.memory.device_uuid)
    return setup.machine.devices if device is None else (device,)


# -- trying ---------------------------------------------------------------------------------------


def _try_setting(setup: TrialSetup, setting: Setting, goal: Goal, trials: list[Trial]) -> Recovery:
    """Runs it once, and twice more if it passes."""
    passed = 0
    for number in range(1, 2 + VERIFYING_RUNS):
        trial = run_trial(setup, Configuration(setting), goal, number)
        trials.append(trial)
        run = trial.run
        assert run is not None
        if trial.overridden or trial.not_tried:
            why = f"the program sets this itself (at {trial.overridden})" if trial.overridden else trial.not_tried
            return Recovery(name=setting.name, reason=why)
        if run.verdict not in PASSED:
            return Recovery(name=setting.name, passed=passed, runs=number, reason=_why_not(setting, run))
        passed += 1
    return Recovery(name=setting.name, passed=passed, runs=passed, verified=True)


def _why_not(setting: Setting, run: Run) -> str:
    """Why it did not pass. A limit that was tried is nearly the whole card: it is not what is too small."""
    limit, total = setting.options.get("memory_limit"), run.memory.device_total_bytes
    if run.verdict == "oom" and limit and total:
        return f"out of memory with {size(limit * _MIB)} of the card's {size(total)}"
    return why_failed(run)


def _answer(first: Trial, run: Run, found: TryResult, best: Setting | None) -> Answer:
    where = f" at step {first.steps}" if first.steps else " before its first step"
    where = "" if _has_several_processes(first) else where
    if best is not None:
        last = found.trials[-1]
        held = last.run.memory.nvml_peak_bytes if last.run is not None and last.run.device_map else None
        amount = f" in {size(held)}" if held else ""
        covered = f"past {_FAILURE_MULTIPLE} times the time at which it failed"
        covered = f"past step {last.steps}" if last.steps else covered
        covered = "to its end" if last.ended_by == "the program" else covered
        results = ", but changes results" if best.changes_results else ""
        verified = f"verified {VERIFYING_RUNS} of {VERIFYING_RUNS}"
        sentence = (
            f"{best.name} makes it pass{amount}, {covered}, {verified}{results}; as it is, it runs out of memory{where}"
        )
        return Answer(sentence=sentence, best=best.name, code=best.code_lines)
    once = [
        f"{recovery.name} passed {recovery.passed} of {recovery.runs} runs"
        for recovery in found.recoveries
        if recovery.passed
    ]
    tried = [recovery.name for recovery in found.recoveries if recovery.runs]
    failed = f"It runs out of memory{where}: {f'{name_list(tried)} did not help' if tried else 'no setting can help'}"
    main = next((finding for finding in run.findings if finding.id == run.primary), None)
    action = f". {main.action}" if main is not None and main.action else ""
    return Answer(sentence="; ".join([failed, *once]).rstrip(".") + action.rstrip("."))
