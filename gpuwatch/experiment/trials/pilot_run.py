"""A short pilot run of the program: which framework it loads, and how long a run takes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from gpuwatch.core.model.try_results import Trial
from gpuwatch.experiment.trials.trial import Goal, run_trial, used_no_gpu
from gpuwatch.experiment.trials.trial_plan import SIMULATED_STEPS, STEADY_SECONDS, Configuration, StopRule
from gpuwatch.experiment.trials.trial_settings import find_setting
from gpuwatch.experiment.trials.trial_setup import TrialSetup

_PILOT_STEPS = 10
_NO_STEPS_ON_GPU_SECONDS = 10.0
"""A run that uses a GPU and counts no step is ended after this time."""
_NO_STEPS_SECONDS = 60.0
"""Any run that counts no step is ended after this time."""


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
        return self.trial.run is not None and self.trial.run.verdict == "fallback" and used_no_gpu(self.trial.run)

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
                return self.seconds + min(2.0, STEADY_SECONDS), self.seconds + STEADY_SECONDS
            case _:
                return None


def run_pilot(setup: TrialSetup, budget: float) -> PilotRun:
    """Starts the program as it is and ends it after its first steps. Raises as :func:`run_trial` does."""
    started_at = time.monotonic()
    goal = Goal(
        StopRule("steps", min(_PILOT_STEPS, SIMULATED_STEPS), uncounted_seconds=_NO_STEPS_ON_GPU_SECONDS),
        deadline=min(_NO_STEPS_SECONDS, budget),
    )
    trial = run_trial(setup, Configuration(find_setting("default")), goal, 0)
    return PilotRun(trial, time.monotonic() - started_at)
