"""What trials showed: the runs of one setting taken together, what they have in common, and why a run failed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.formatting.sentences import as_clause
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.memory_profile import MemoryProfile
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.try_results import StepTime, Trial
from gpuwatch.experiment.trials.trial_plan import Configuration

PASSED_VERDICTS = ("ok", "fallback")
SAME_MEMORY_SHARE = 0.01
"""Share by which NVML's peaks must differ to be mentioned."""


@dataclass(frozen=True, slots=True)
class SettingSummary:
    """All runs of one setting."""

    name: str
    trials: tuple[Trial, ...]

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(trial.run for trial in self.trials if trial.run is not None)

    @property
    def not_tried(self) -> str:
        """Why it was not tried, or could not be applied."""
        return next((trial.not_tried for trial in self.trials if trial.not_tried), "")

    @property
    def overridden(self) -> str:
        """Where the program sets the same itself."""
        return next((trial.overridden for trial in self.trials if trial.overridden), "")

    @property
    def simulated(self) -> bool:
        """Whether its GPUs are simulated: their speeds are not compared."""
        return any(run.simulated for run in self.runs)

    @property
    def was_tried(self) -> bool:
        """Whether its runs show what the setting does."""
        return bool(self.runs) and not self.not_tried and not self.overridden

    @property
    def first_failed_run(self) -> Run | None:
        """Its first run that did not pass."""
        return next((run for run in self.runs if run.verdict not in PASSED_VERDICTS), None)

    @property
    def has_passed(self) -> bool:
        return bool(self.runs) and self.first_failed_run is None

    @property
    def representative_run(self) -> Run | None:
        """The run that stands for all of them: one that failed, else the one that held most memory."""
        return self.first_failed_run or max(self.runs, key=lambda run: run.memory.nvml_peak_bytes or 0, default=None)

    @property
    def furthest_trial(self) -> Trial:
        """The run that failed; where none did, the one that got furthest."""
        failed = self.first_failed_run
        if failed is not None:
            return next(trial for trial in self.trials if trial.run is failed)
        return max(self.trials, key=lambda trial: (trial.ended_by == "the program", trial.steps or 0))

    @property
    def memory(self) -> tuple[int, int] | None:
        """Least and most of the peaks of its runs by NVML, in bytes; None if one is unknown, or it used no GPU."""
        peaks = [run.memory.nvml_peak_bytes for run in self.runs if run.device_map]
        known_peaks = [amount for amount in peaks if amount]
        return (min(known_peaks), max(known_peaks)) if known_peaks and len(known_peaks) == len(self.runs) else None

    @property
    def allocator_peak(self) -> int | None:
        """The most that the framework's allocator had handed out in any of its runs; None if no run says so."""
        return max((peak for run in self.runs if (peak := run.memory.allocator_peak_bytes) is not None), default=None)

    @property
    def step_time(self) -> StepTime | None:
        """Over all its runs: the median of their medians, and the range of their intervals."""
        times = [trial.step_time for trial in self.trials if trial.step_time is not None]
        if not times:
            return None
        return StepTime(
            median_seconds=statistics.median(time.median_seconds for time in times),
            low_seconds=min(time.low_seconds for time in times),
            high_seconds=max(time.high_seconds for time in times),
            timed=sum(time.timed for time in times),
        )

    @property
    def same_work(self) -> bool:
        """Whether its runs did as much as those of other settings: they ended by themselves, or had as many steps."""
        return all(trial.steps or trial.ended_by in ("the program", "success") for trial in self.trials if trial.run)

    @property
    def changes_results(self) -> bool:
        return any(trial.changes_results for trial in self.trials)


def summarize_settings(trials: Sequence[Trial]) -> tuple[SettingSummary, ...]:
    """A summary of each setting, in the order in which they were asked for.

    Copies that ran at once and runs with the recorder are left out: their memory and speed are not the setting's.
    """
    comparable = (trial for trial in trials if not trial.copy and not trial.recorded)
    return tuple(
        SettingSummary(name, tuple(setting_trials))
        for name, setting_trials in group_by(comparable, lambda trial: trial.name).items()
    )


def recorded_profiles(trials: Sequence[Trial]) -> dict[str, MemoryProfile]:
    """Who held GPU memory under each setting, of those whose run was recorded: the fullest GPU's profile."""
    profile_by_setting: dict[str, MemoryProfile] = {}
    for trial in trials:
        if trial.recorded and trial.run is not None:
            gpu_profile = next((profile for profile in trial.run.memory_profiles if profile.device != "host"), None)
            if gpu_profile is not None:
                profile_by_setting[trial.name] = gpu_profile
    return profile_by_setting


def why_failed(run: Run) -> str:
    """``out of memory: another process holds the GPU``, ``ValueError: …``: why a run did not pass."""
    cause = CAUSES.get(run.primary, "") if run.primary not in ("healthy", "unknown", "program.error", None) else ""
    if run.verdict == "oom":
        detail = as_clause(cause).removeprefix("out of memory").lstrip(": ")
        return f"out of memory: {detail}" if detail else "out of memory"
    return as_clause(cause or run.verdict_reason.rstrip(".")) or run.verdict


class Interrupted(Exception):
    """The user interrupted the experiment, during a trial or between two."""

    def __init__(self, signal_number: int, trial: Trial | None = None) -> None:
        super().__init__(signal_number)
        self.number = signal_number
        """Number of the signal that interrupted the experiment."""
        self.trial = trial
        """The unfinished trial, as far as it was measured."""


def skipped_trial(configuration: Configuration, reason: str) -> Trial:
    """A trial that was not run."""
    return Trial(asked=configuration.setting.name, values=dict(configuration.values), not_tried=reason)


def out_of_budget_reason(budget: float) -> str:
    """Why the last ones were not run, with ``--budget`` in seconds."""
    return f"no time left within --budget {hours_minutes(budget)}"
