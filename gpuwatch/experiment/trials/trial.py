"""One run of the user's program under one setting: started, measured, ended."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpuwatch.core.masking.mask_secrets import mask_command
from gpuwatch.core.model.run import Run, Throughput, Verdict
from gpuwatch.core.model.try_results import StepTime, Trial
from gpuwatch.experiment.probing.launch_program import GuardedProgram, Options
from gpuwatch.experiment.probing.received_events import Applied, ReceivedEvents, StepCount
from gpuwatch.experiment.probing.watch_program import Measured, Watch
from gpuwatch.experiment.trials.step_times import is_steady, median_step
from gpuwatch.experiment.trials.trial_plan import MIN_SECONDS, STEADY_SECONDS, Configuration, Rule, command_with_values
from gpuwatch.experiment.trials.trial_settings import Setting, made_by_program
from gpuwatch.experiment.trials.trial_setup import Feed, TrialSetup, TrialStart
from gpuwatch.experiment.trials.trial_summary import PASSED
from gpuwatch.explain.diagnosis.runs.finished_run import DESPITE_OOM, complete

_LAST_SAMPLE_SECONDS = 3.0
_NO_GPU = "-1"
"""CUDA_VISIBLE_DEVICES of a program that is to run on the CPU."""
_MIN_STANDSTILL_SECONDS, _MAX_LATEST_STEPS = 0.5, 100
"""Seconds without a step after which a program may stand still, and latest steps whose times are looked at."""
_TENSORFLOW_RETRY_SECONDS = 11.0
"""Seconds after which an allocation that TensorFlow retries (for 10 s) has failed, and that is known."""
_RECOVERED_SECONDS = 1.0
"""Seconds after a message that memory ran out from which on a step shows that the program goes on."""
_WENT_ON = "It ran out of memory, handled that and continued."
_STEP_GROWTH_FACTOR = 1.1
"""Factor by which the number of steps must have grown before the interval is computed again."""


@dataclass(frozen=True, slots=True)
class Goal:
    """When a trial ends."""

    rule: Rule
    steps: int | None = None
    """Steps that an earlier trial did: this one does as many."""
    deadline: float | None = None
    """Seconds after which it is ended, if it still runs."""


class Interrupted(Exception):
    """The user interrupted the experiment, during a trial or between two."""

    def __init__(self, signal_number: int, trial: Trial | None = None) -> None:
        super().__init__(signal_number)
        self.number = signal_number
        """Number of the signal that interrupted the experiment."""
        self.trial = trial
        """The unfinished trial, as far as it was measured."""


class Stop:
    """Asked while the program runs whether its measurement ends; remembers why."""

    def __init__(self, goal: Goal, show: Callable[[int], None]) -> None:
        self.goal = goal
        self._show = show
        self._judge_at = 0
        self._shown = 0.0
        self._on_gpu: float | None = None
        """Seconds after the start when a GPU came into use."""
        self.uncounted: float | None = None
        """Seconds on a GPU, in a program whose steps cannot be counted."""
        self.succeeded = False
        """Set when the program printed what was declared as success."""
        self.refused_at: float | None = None
        """Monotonic time of the latest line of output that says that memory ran out."""
        self.why = ""
        """``steps``, ``success`` or ``deadline``; empty while the measurement goes on."""

    def counted(self, steps: StepCount) -> StepCount:
        """The steps that count, of those that the program did."""
        return steps

    def __call__(self, state: ReceivedEvents, seconds: float, starting: Callable[[], bool]) -> bool:
        """Whether the measurement ends, ``seconds`` after the program was started.

        ``starting``: whether other processes of the program may still be on their way to their first steps.
        """
        if seconds - self._shown >= 0.5:
            self._shown = seconds
            self._show(state.steps.count)
        if self._on_gpu is None and _uses_gpu(state):
            self._on_gpu = seconds
        if self.succeeded:
            self.why = "success"
        elif self._goal_reached(state.steps, seconds) and not starting():
            self.why = "steps"
        elif self._is_late(state, seconds):
            self.why = "deadline"
        return bool(self.why)

    def _is_late(self, state: ReceivedEvents, seconds: float) -> bool:
        """Whether its time is over; a program that stands still on a GPU has more: an allocation may be failing."""
        if self.goal.deadline is None or seconds < self.goal.deadline:
            return False
        if not _uses_gpu(state) or not _stands_still(state.steps):
            return True
        since = 0.0 if state.steps.last_at is None else seconds - (time.monotonic() - state.steps.last_at)
        return seconds >= max(self.goal.deadline, since) + _TENSORFLOW_RETRY_SECONDS

    def _goal_reached(self, seen: StepCount, seconds: float) -> bool:
        rule = self.goal.rule
        if rule.kind == "end":
            return False
        if self.goal.steps is not None:
            return seen.count >= self.goal.steps
        if not seen.count and rule.uncounted is not None and self._on_gpu is not None:
            self.uncounted = seconds - self._on_gpu
            return self.uncounted >= rule.uncounted
        if not seen.count or seen.first_at is None or seen.last_at is None:
            return rule.kind == "seconds" and seconds >= rule.amount
        lasted = seen.last_at - seen.first_at
        if rule.kind == "steps":
            return seen.count >= rule.amount and lasted >= rule.least
        if rule.kind == "seconds":
            return lasted >= rule.amount
        if lasted >= STEADY_SECONDS:
            return True
        if lasted < MIN_SECONDS or seen.count < self._judge_at:
            return False
        self._judge_at = int(seen.count * _STEP_GROWTH_FACTOR) + 1
        return is_steady(median_step(seen.times))


def _uses_gpu(state: ReceivedEvents) -> bool:
    return any("GPU" in name or "cuda" in name for name in (*state.devices.logical, *state.mappings))


def _stands_still(seen: StepCount) -> bool:
    """Whether no step has come for longer than a step takes; until a second report nothing else is known."""
    if seen.first_at is None or seen.last_at is None or seen.first_at == seen.last_at:
        return True
    longest = max(*seen.times[-_MAX_LATEST_STEPS:], (seen.last_at - seen.first_at) / max(seen.count - 1, 1), 0.0)
    return time.monotonic() - seen.last_at > max(_MIN_STANDSTILL_SECONDS, 3 * longest)


def run_trial(
    setup: TrialSetup,
    configuration: Configuration,
    goal: Goal,
    number: int = 1,
    *,
    no_retry: bool = False,
    record: bool = False,
    copy: int = 0,
    stop: Stop | None = None,
    feed: Feed | None = None,
) -> Trial:
    """Runs the program once under ``configuration``, until ``goal`` is reached or it ends.

    ``number``: of the round. ``no_retry``: TensorFlow's allocator fails at once instead of retrying for 10 s, except
    on a PluggableDevice.
    ``record``: also record who allocates GPU memory. ``copy``: number among copies at once, which run in threads of
    their own, each with its ``stop`` and ``feed``.

    Whatever the program does after the measurement counts for nothing; nothing of it is left running. Raises
    :class:`Interrupted` (Ctrl+C) with what was measured until then, and
    :class:`~gpuwatch.experiment.probing.run_verdict.NotStarted`.
    """
    setup.made += 1
    run_name = f"{configuration.slug}-{'memory' if record else number}" + (f"-copy{copy}" if copy else "")
    feed = feed or setup.feed
    output = setup.folder / f"{setup.made:02}-{run_name}.log"

    begun = TrialStart(configuration.name, setup.made, setup.planned, round=number, copy=copy, recorded=record)
    setup.progress.begins(begun)
    ending = stop or Stop(goal, setup.progress.steps)

    def line(raw: bytes) -> None:
        if b"out of memory" in raw or b"RESOURCE_EXHAUSTED" in raw:
            ending.refused_at = time.monotonic()
        if setup.success is not None and setup.success.search(raw.decode("utf-8", "replace")):
            ending.succeeded = True

    with tempfile.TemporaryDirectory(prefix="gpuwatch-try-", ignore_cleanup_errors=True) as fresh:
        options = Options(
            simulation=setup.simulation,
            variables=_variables(setup, configuration, run_name, fresh, no_retry=no_retry),
            output=output,
            memory=record,
            folder=Path(fresh) / "work" if setup.isolate else None,
            signals=not copy,
        )
        command = command_with_values(setup.command, configuration.values, run_name)
        if setup.isolate:
            command = [_absolute_path(word) for word in command]
            for name in ("work", "tmp"):
                (Path(fresh) / name).mkdir()
        before = feed.fresh(_LAST_SAMPLE_SECONDS)
        with (
            GuardedProgram(command, options) as program,
            Watch(program, lambda draft: draft.run, source=feed, before=before, look=feed.sample_now) as watch,
        ):
            measured = watch.measure(ending, line)
    trial = _finished_trial(configuration, measured, ending, setup)
    trial = msgspec.structs.replace(trial, round=number, copy=copy, recorded=record, output=str(output))
    setup.progress.ended(trial)
    if measured.interrupted is not None:
        raise Interrupted(measured.interrupted, trial)
    return trial


def _variables(
    setup: TrialSetup, configuration: Configuration, run_name: str, fresh: str, *, no_retry: bool
) -> dict[str, str]:
    setting = configuration.setting
    found = {**setup.variables, **setting.variables, "GPUWATCH_TRY_RUN": run_name}
    trial = {"probe": setting.probe, "options": setting.options, "no_retry": no_retry, "interval": 0.2}
    found["GPUWATCH_TRIAL"] = json.dumps(trial)
    # Without this, Python keeps what a program prints until it ends.
    found.setdefault("PYTHONUNBUFFERED", os.environ.get("PYTHONUNBUFFERED", "1"))
    if setup.isolate:
        found["TMPDIR"] = f"{fresh}/tmp"  # noqa: S108  # in a folder of this run
        found["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH", ""), str(Path.cwd()))))
    return found


def _absolute_path(word: str) -> str:
    """A word of the command that names a file, so that it is found from another folder."""
    return str(Path(word).absolute()) if not word.startswith("-") and Path(word).exists() else word


def _finished_trial(configuration: Configuration, measured: Measured, stop: Stop, setup: TrialSetup) -> Trial:
    draft, steps = measured.draft, stop.counted(measured.steps)
    ended = measured.ended_by == "the program"
    verdict, reason = _verdict(draft.run, stop, setup, steps.count, ended=ended)
    time_of_step = median_step(steps.times)
    run = msgspec.structs.replace(
        draft.run,
        config=configuration.name,
        # {run} stays in the title: it does not tell runs apart.
        title=mask_command(command_with_values(setup.command, configuration.values, "{run}")),
        verdict=verdict,
        verdict_reason=reason,
        throughput=_throughput(draft.run.throughput, steps, time_of_step),
    )
    run = complete(run, draft.log, draft.before)
    if run.verdict == "oom" and not ended and _went_on(stop, steps):  # otherwise its exit code has told
        run = msgspec.structs.replace(run, verdict="ok", verdict_reason=_WENT_ON, primary=None)
    setting = configuration.setting
    if setting.variables.get("CUDA_VISIBLE_DEVICES") == _NO_GPU and run.verdict == "fallback":
        findings = tuple(found for found in run.findings if found.id != run.primary)
        run = msgspec.structs.replace(
            run, verdict="ok", verdict_reason="It ran on the CPU, as requested.", findings=findings, primary=None
        )
    reported = _reported_setting(setting, run, measured.applied) or Applied(name=setting.name)
    return Trial(
        asked=setting.name,
        values=dict(configuration.values),
        run=run,
        not_tried="" if reported.applied or reported.overridden else reported.reason,
        applied=reported.applied,
        effective=reported.effective,
        overridden=reported.overridden,
        changes_results=setting.changes_results,
        counted=steps.counted,
        steps=steps.count or None,
        step_time=time_of_step,
        ended_by="success" if stop.why == "success" else measured.ended_by,
        covered=_covered_work(steps, run, stop.uncounted, ended=ended),
    )


def _reported_setting(setting: Setting, run: Run, applied: Applied | None) -> Applied | None:
    """What became of the setting: as the program reported it, else by the variables that it had when it used a GPU."""
    if applied is not None and setting.probe is not None:
        return applied
    if own := made_by_program(setting, run.settings):
        place = own.rpartition("(")[2].rstrip(")")
        return Applied(name=setting.name, applied=False, overridden=place)
    if not setting.variables or run.framework is None:
        return None  # nothing to apply, or nobody could tell
    if setting.framework != "any" and setting.variables.get("CUDA_VISIBLE_DEVICES") is None and used_no_gpu(run):
        return Applied(name=setting.name, applied=False, reason="the program used no GPU")
    there = all(run.environment.get(name) == value for name, value in setting.variables.items())
    known = {name: run.settings[name].effective for name in setting.variables if name in run.settings}
    effective = {name: value for name, value in known.items() if value is not None}
    return Applied(name=setting.name, applied=there, effective=effective) if there or known else None


def used_no_gpu(run: Run) -> bool:
    """Whether the program started its framework's devices, and none of them is a GPU."""
    processes = run.processes or (run,)
    return any(process.devices.logical for process in processes) and not (
        run.device_map
        or any(
            process.device_map or any("GPU" in name or name.startswith("cuda") for name in process.devices.logical)
            for process in processes
        )
    )


def _verdict(run: Run, stop: Stop, setup: TrialSetup, steps: int, *, ended: bool) -> tuple[Verdict, str]:
    """The run's verdict before diagnosis: a program that was ended because its measurement was done has passed."""
    if ended:
        if setup.success is not None and run.verdict in ("ok", "error"):
            return ("ok", "") if stop.succeeded else ("error", "It ended without a line that matches --success.")
        return run.verdict, run.verdict_reason
    if stop.why in ("steps", "success"):
        return "ok", ""
    if stop.why == "deadline" and steps and stop.goal.rule.kind != "end":
        return "ok", ""  # slower than thought, but its steps were measured
    if stop.why == "deadline":
        took = run.phases.total_seconds or 0.0
        if run.ooms and not steps:  # TensorFlow retries for ten seconds before it fails
            return "oom", f"It ran out of memory; it was stopped after {took:.0f} s, its share of --budget."
        what = f"after {steps} steps" if steps else "and no step could be counted"
        return "timeout", f"It was stopped after {took:.0f} s, its share of --budget, {what}."
    return "interrupted", run.verdict_reason


def handled_oom(run: Run) -> bool:
    """Whether memory ran out, and the program succeeded or stepped on all the same."""
    return run.verdict_reason in (_WENT_ON, DESPITE_OOM)


def _went_on(stop: Stop, steps: StepCount) -> bool:
    """Whether the program handled that memory ran out, as by a smaller batch: it succeeded, or stepped on."""
    later = (
        stop.refused_at is not None
        and steps.last_at is not None
        and steps.last_at > stop.refused_at + _RECOVERED_SECONDS
    )
    return stop.why == "success" or (stop.why == "steps" and later)


def _covered_work(steps: StepCount, run: Run, uncounted: float | None, *, ended: bool) -> str:
    done = f"{steps.count} step{'' if steps.count == 1 else 's'}" if steps.count else ""
    if ended and run.verdict in PASSED:
        return "the whole program"
    if ended:
        return f"{done}, then it failed" if done else "it failed"
    if done and steps.validations is not None:
        seen = (
            f"{steps.validations} validation{'' if steps.validations == 1 else 's'}"
            if steps.validations
            else "no validation"
        )
        return f"{done}, {seen} seen"
    if done:
        return done
    return "no step was counted" if uncounted is None else f"{uncounted:.0f} s on the GPU, no step was counted"


def _throughput(seen: Throughput | None, steps: StepCount, median: StepTime | None) -> Throughput | None:
    """The speed of the steps that were measured, else that which the program reported."""
    if median is None or median.median_seconds <= 0:
        return seen
    ordered = sorted(steps.times)
    return Throughput(
        device=None if seen is None else seen.device,
        steps=steps.count,
        warmup_steps=max(steps.count - len(ordered), 0),
        median_step_seconds=median.median_seconds,
        p10_step_seconds=ordered[len(ordered) // 10],
        p90_step_seconds=ordered[len(ordered) * 9 // 10],
        steps_per_second=1 / median.median_seconds,
        counted=steps.counted,
    )
