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

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.masking.mask_secrets import mask_command
from gpuwatch.core.model.causes import NO_GPU
from gpuwatch.core.model.run import Run, Throughput, Verdict
from gpuwatch.core.model.try_results import StepTime, Trial
from gpuwatch.experiment.probing.launch_program import GuardedProgram, WatchOptions
from gpuwatch.experiment.probing.received_events import AppliedSetting, ReceivedEvents, StepCount
from gpuwatch.experiment.probing.step_times import is_steady, median_step, speed_of_steps
from gpuwatch.experiment.probing.watch_program import Measured, Watch
from gpuwatch.experiment.trials.trial_plan import (
    MAX_SECONDS_TO_STEADY,
    MIN_STEP_SECONDS,
    Configuration,
    StopRule,
    command_with_values,
)
from gpuwatch.experiment.trials.trial_results import PASSED_VERDICTS, Interrupted, why_failed
from gpuwatch.experiment.trials.trial_settings import TrialSetting, program_setting_text
from gpuwatch.experiment.trials.trial_setup import Feed, StartedTrial, TrialSetup
from gpuwatch.explain.diagnosis.runs.final_verdict import DESPITE_OOM, pytorch_used_no_gpu
from gpuwatch.explain.diagnosis.runs.finished_run import complete

_LAST_SAMPLE_SECONDS = 3.0
_NO_GPU = "-1"
"""CUDA_VISIBLE_DEVICES of a program that is to run on the CPU."""
_MIN_STANDSTILL_SECONDS, _MAX_LATEST_STEPS = 0.5, 100
"""Seconds without a step after which a program may stand still, and latest steps whose times are looked at."""
_TENSORFLOW_RETRY_SECONDS = 11.0
"""Seconds after which an allocation that TensorFlow retries (for 10 s) has failed, and that is known."""
_RECOVERED_SECONDS = 1.0
"""Seconds after a message that memory ran out from which on a step shows that the program goes on."""
_CONTINUED = "It ran out of memory, handled that and continued."
_STEP_GROWTH_FACTOR = 1.1
"""Factor by which the number of steps must have grown before the interval is computed again."""


@dataclass(frozen=True, slots=True)
class Goal:
    """When a trial ends."""

    rule: StopRule
    steps: int | None = None
    """Steps that an earlier trial did: this one does as many."""
    deadline: float | None = None
    """Seconds after which it is ended, if it still runs."""


class StopCondition:
    """Asked while the program runs whether its measurement ends; remembers why."""

    def __init__(self, goal: Goal, show_steps: Callable[[int], None]) -> None:
        self.goal = goal
        self._show_steps = show_steps
        self._next_judged_count = 0
        self._shown_at = 0.0
        self._on_gpu_at: float | None = None
        """Seconds after the start when a GPU came into use."""
        self.uncounted_seconds: float | None = None
        """Seconds on a GPU, in a program whose steps cannot be counted."""
        self.succeeded = False
        """Set when the program printed what was declared as success."""
        self.oom_message_at: float | None = None
        """Monotonic time of the latest line of output that says that memory ran out."""
        self.reason = ""
        """``steps``, ``success`` or ``deadline``; empty while the measurement goes on."""

    def counted_steps(self, steps: StepCount) -> StepCount:
        """The steps that count, of those that the program did."""
        return steps

    def __call__(self, program: ReceivedEvents, seconds: float, others_starting: Callable[[], bool]) -> bool:
        """Whether the measurement ends, ``seconds`` after the program was started.

        ``others_starting``: whether other processes of the program may still be on their way to their first steps.
        """
        if seconds - self._shown_at >= 0.5:
            self._shown_at = seconds
            self._show_steps(program.steps.count)
        if self._on_gpu_at is None and _uses_gpu(program):
            self._on_gpu_at = seconds
        if self.succeeded:
            self.reason = "success"
        elif self._goal_reached(program.steps, seconds) and not others_starting():
            self.reason = "steps"
        elif self._is_late(program, seconds):
            self.reason = "deadline"
        return bool(self.reason)

    def _is_late(self, program: ReceivedEvents, seconds: float) -> bool:
        """Whether its time is over; a program that stands still on a GPU has more: an allocation may be failing."""
        if self.goal.deadline is None or seconds < self.goal.deadline:
            return False
        if not _uses_gpu(program) or not _is_standing_still(program.steps):
            return True
        standing_since = 0.0 if program.steps.last_at is None else seconds - (time.monotonic() - program.steps.last_at)
        return seconds >= max(self.goal.deadline, standing_since) + _TENSORFLOW_RETRY_SECONDS

    def _goal_reached(self, steps: StepCount, seconds: float) -> bool:
        rule = self.goal.rule
        if rule.kind == "end":
            return False
        if self.goal.steps is not None:
            return steps.count >= self.goal.steps
        if not steps.count and rule.uncounted_seconds is not None and self._on_gpu_at is not None:
            self.uncounted_seconds = seconds - self._on_gpu_at
            return self.uncounted_seconds >= rule.uncounted_seconds
        if not steps.count or steps.first_at is None or steps.last_at is None:
            return rule.kind == "seconds" and seconds >= rule.amount
        step_seconds = steps.last_at - steps.first_at
        if rule.kind == "steps":
            return steps.count >= rule.amount and step_seconds >= rule.min_step_seconds
        if rule.kind == "seconds":
            return step_seconds >= rule.amount
        if step_seconds >= MAX_SECONDS_TO_STEADY:
            return True
        if step_seconds < MIN_STEP_SECONDS or steps.count < self._next_judged_count:
            return False
        self._next_judged_count = int(steps.count * _STEP_GROWTH_FACTOR) + 1
        return is_steady(median_step(steps.times))


def _uses_gpu(program: ReceivedEvents) -> bool:
    return any("GPU" in name or "cuda" in name for name in (*program.devices.logical, *program.device_mappings))


def _is_standing_still(steps: StepCount) -> bool:
    """Whether no step has come for longer than a step takes; until a second report nothing else is known."""
    if steps.first_at is None or steps.last_at is None or steps.first_at == steps.last_at:
        return True
    mean = (steps.last_at - steps.first_at) / max(steps.count - 1, 1)
    longest = max(*steps.times[-_MAX_LATEST_STEPS:], mean, 0.0)
    return time.monotonic() - steps.last_at > max(_MIN_STANDSTILL_SECONDS, 3 * longest)


def run_trial(
    setup: TrialSetup,
    configuration: Configuration,
    goal: Goal,
    round_number: int = 1,
    *,
    no_retry: bool = False,
    record: bool = False,
    copy: int = 0,
    stop: StopCondition | None = None,
    feed: Feed | None = None,
) -> Trial:
    """Runs the program once under ``configuration``, until ``goal`` is reached or it ends.

    ``no_retry``: TensorFlow's allocator fails at once instead of retrying for 10 s, except on a PluggableDevice.
    ``record``: also record who allocates GPU memory. ``copy``: number among copies at once, which run in threads of
    their own, each with its ``stop`` and ``feed``.

    Whatever the program does after the measurement is ignored, and nothing that it started is left running.

    Raises:
        Interrupted: the user pressed Ctrl+C; with what was measured until then.
        NotStarted: the program could not be executed.
    """
    setup.started_count += 1
    run_name = f"{configuration.slug}-{'memory' if record else round_number}" + (f"-copy{copy}" if copy else "")
    feed = feed or setup.feed
    output = setup.folder / f"{setup.started_count:02}-{run_name}.log"

    start = StartedTrial(
        configuration.name, setup.started_count, setup.planned_count, round=round_number, copy=copy, recorded=record
    )
    setup.progress.show_start(start)
    stop_condition = stop or StopCondition(goal, setup.progress.show_steps)

    def take_line(line: bytes) -> None:
        if b"out of memory" in line or b"RESOURCE_EXHAUSTED" in line:
            stop_condition.oom_message_at = time.monotonic()
        if setup.success is not None and setup.success.search(line.decode("utf-8", "replace")):
            stop_condition.succeeded = True

    with tempfile.TemporaryDirectory(prefix="gpuwatch-try-", ignore_cleanup_errors=True) as scratch:
        options = WatchOptions(
            simulation=setup.simulation,
            variables=_trial_environment(setup, configuration, run_name, scratch, no_retry=no_retry),
            output=output,
            record_memory=record,
            folder=Path(scratch) / "work" if setup.isolate else None,
            receive_signals=not copy,
        )
        command = command_with_values(setup.command, configuration.values, run_name)
        if setup.isolate:
            command = [_absolute_path(word) for word in command]
            for name in ("work", "tmp"):
                (Path(scratch) / name).mkdir()
        snapshot_before = feed.fresh(_LAST_SAMPLE_SECONDS)
        with (
            GuardedProgram(command, options) as program,
            Watch(
                program,
                lambda draft: draft.run,
                snapshots=feed,
                snapshot_before=snapshot_before,
                sample_now=feed.sample_now,
            ) as watch,
        ):
            measured = watch.measure(stop_condition, take_line)
    trial = _finished_trial(configuration, measured, stop_condition, setup)
    trial = msgspec.structs.replace(trial, round=round_number, copy=copy, recorded=record, output=str(output))
    setup.progress.show_end(trial)
    if measured.interrupted is not None:
        raise Interrupted(measured.interrupted, trial)
    return trial


def _trial_environment(
    setup: TrialSetup, configuration: Configuration, run_name: str, scratch: str, *, no_retry: bool
) -> dict[str, str]:
    setting = configuration.setting
    variables = {**setup.variables, **setting.variables, "GPUWATCH_TRY_RUN": run_name}
    trial_settings = {"probe": setting.probe, "options": setting.options, "no_retry": no_retry, "interval": 0.2}
    variables["GPUWATCH_TRIAL"] = json.dumps(trial_settings)
    # Without this, Python keeps what a program prints until it ends.
    variables.setdefault("PYTHONUNBUFFERED", os.environ.get("PYTHONUNBUFFERED", "1"))
    if setup.isolate:
        variables["TMPDIR"] = f"{scratch}/tmp"  # noqa: S108  # in a folder of this run
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH", ""), str(Path.cwd()))))
    return variables


def _absolute_path(word: str) -> str:
    """A word of the command that names a file, so that it is found from another folder."""
    return str(Path(word).absolute()) if not word.startswith("-") and Path(word).exists() else word


def _finished_trial(configuration: Configuration, measured: Measured, stop: StopCondition, setup: TrialSetup) -> Trial:
    draft, steps = measured.draft, stop.counted_steps(measured.steps)
    ended_by_itself = measured.ended_by == "the program"
    verdict, reason = _verdict(draft.run, stop, setup, steps.count, ended_by_itself=ended_by_itself)
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
    # Of a program that ended by itself, its exit code says whether it handled that.
    if run.verdict == "oom" and not ended_by_itself and _continued_after_oom(stop, steps):
        run = msgspec.structs.replace(run, verdict="ok", verdict_reason=_CONTINUED, primary=None)
    setting = configuration.setting
    if setting.variables.get("CUDA_VISIBLE_DEVICES") == _NO_GPU and run.verdict == "fallback":
        findings = tuple(finding for finding in run.findings if finding.id != run.primary)
        run = msgspec.structs.replace(
            run, verdict="ok", verdict_reason="It ran on the CPU, as requested.", findings=findings, primary=None
        )
    default = next((trial.run for trial in setup.experiment.trials if trial.asked == "default" and trial.run), None)
    reported_setting = _reported_setting(setting, run, measured.applied, default) or AppliedSetting(name=setting.name)
    return Trial(
        asked=setting.name,
        values=dict(configuration.values),
        run=run,
        not_tried="" if reported_setting.applied or reported_setting.overridden else reported_setting.reason,
        applied=reported_setting.applied,
        effective=reported_setting.effective,
        overridden=reported_setting.overridden,
        changes_results=setting.changes_results,
        counted=steps.counted,
        steps=steps.count or None,
        step_time=time_of_step,
        ended_by="success" if stop.reason == "success" else measured.ended_by,
        covered=_covered_work(steps, run, stop.uncounted_seconds, ended_by_itself=ended_by_itself),
    )


def _reported_setting(
    setting: TrialSetting, run: Run, applied: AppliedSetting | None, default: Run | None
) -> AppliedSetting | None:
    """What became of the setting: as the program reported it, else by the variables that it had when it used a GPU.
    ``default``: a run without the setting, if there was one."""
    if applied is not None and setting.probe is not None:
        return applied
    if override := program_setting_text(setting, run.settings, default.settings if default is not None else None):
        place = override.rpartition("(")[2].rstrip(")")
        return AppliedSetting(name=setting.name, applied=False, overridden=place)
    if not setting.variables or run.framework is None:
        return None  # nothing to apply, or nobody could tell
    if setting.framework != "any" and setting.variables.get("CUDA_VISIBLE_DEVICES") is None and used_no_gpu(run):
        return AppliedSetting(name=setting.name, applied=False, reason="the program used no GPU")
    reached = all(run.environment.get(name) == value for name, value in setting.variables.items())
    own_values = {name: run.settings[name].effective for name in setting.variables if name in run.settings}
    effective = {name: value for name, value in own_values.items() if value is not None}
    return AppliedSetting(name=setting.name, applied=reached, effective=effective) if reached or own_values else None


def used_no_gpu(run: Run) -> bool:
    """Whether the program started its framework's devices, and none of them is a GPU."""
    states = run.processes or (run,)
    return any(state.devices.logical for state in states) and not (
        run.device_map
        or any(
            state.device_map or any("GPU" in name or name.startswith("cuda") for name in state.devices.logical)
            for state in states
        )
    )


def ran_on_cpu(run: Run) -> bool:
    """Whether the program has a framework and used no GPU: there was none for it, or it moved nothing to one."""
    had_none = run.verdict == "fallback" and (used_no_gpu(run) or (run.primary in NO_GPU and not run.device_map))
    return had_none or (run.verdict == "ok" and pytorch_used_no_gpu(run))


def why_on_cpu(run: Run) -> str:
    """Why a program that :func:`ran_on_cpu` did."""
    return why_failed(run) if run.primary in NO_GPU else "it moved nothing to one"


def _verdict(
    run: Run, stop: StopCondition, setup: TrialSetup, steps: int, *, ended_by_itself: bool
) -> tuple[Verdict, str]:
    """The run's verdict before diagnosis: a program that was ended because its measurement was done has passed."""
    if ended_by_itself:
        if setup.success is not None and run.verdict in ("ok", "error"):
            if stop.succeeded:
                return "ok", ""
            return "error", "It ended without a line that matches --success."
        return run.verdict, run.verdict_reason
    if stop.reason in ("steps", "success"):
        return "ok", ""
    if stop.reason == "deadline" and steps and stop.goal.rule.kind != "end":
        return "ok", ""  # slower than thought, but its steps were measured
    if stop.reason == "deadline":
        seconds = run.phases.total_seconds or 0.0
        if run.ooms and not steps:  # TensorFlow retries for ten seconds before it fails
            return "oom", f"It ran out of memory; it was stopped after {seconds:.0f} s, its share of --budget."
        how_far = f"after {count_text(steps, 'step')}" if steps else "and no step could be counted"
        return "timeout", f"It was stopped after {seconds:.0f} s, its share of --budget, {how_far}."
    return "interrupted", run.verdict_reason


def handled_oom(run: Run) -> bool:
    """Whether memory ran out, and the program succeeded or stepped on all the same."""
    return run.verdict_reason.startswith((_CONTINUED, DESPITE_OOM))


def _continued_after_oom(stop: StopCondition, steps: StepCount) -> bool:
    """Whether the program handled that memory ran out, as by a smaller batch: it succeeded, or stepped on."""
    stepped_later = (
        stop.oom_message_at is not None
        and steps.last_at is not None
        and steps.last_at > stop.oom_message_at + _RECOVERED_SECONDS
    )
    return stop.reason == "success" or (stop.reason == "steps" and stepped_later)


def _covered_work(steps: StepCount, run: Run, uncounted_seconds: float | None, *, ended_by_itself: bool) -> str:
    step_text = f"{steps.count} step{'' if steps.count == 1 else 's'}" if steps.count else ""
    if ended_by_itself and run.verdict in PASSED_VERDICTS:
        return "the whole program"
    if ended_by_itself:
        return f"{step_text}, then it failed" if step_text else "it failed"
    if step_text and steps.validations is not None:
        validation_text = (
            f"{steps.validations} validation{'' if steps.validations == 1 else 's'}"
            if steps.validations
            else "no validation"
        )
        return f"{step_text}, {validation_text} seen"
    if step_text:
        return step_text
    on_gpu = "" if uncounted_seconds is None else f"{uncounted_seconds:.0f} s on the GPU, "
    return f"{on_gpu}no step was counted"


def _throughput(reported: Throughput | None, steps: StepCount, median: StepTime | None) -> Throughput | None:
    """The speed of the steps that were measured, else that which the program reported."""
    if median is None or median.median_seconds <= 0:
        return reported
    measured = speed_of_steps(steps.counted, steps.count, max(steps.count - len(steps.times), 0), steps.times)
    seconds = median.median_seconds  # where steps wait only now and then, not that of most of them
    return msgspec.structs.replace(
        measured,
        median_step_seconds=seconds,
        median_low_seconds=median.low_seconds,
        median_high_seconds=median.high_seconds,
        steps_per_second=1 / seconds,
    )
