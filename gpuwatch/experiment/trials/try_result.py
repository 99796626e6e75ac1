"""What one form of ``gpuwatch try`` found."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.model.try_results import Answer, Fit, Largest, Recovery, Trial
from gpuwatch.experiment.trials.trial import Interrupted
from gpuwatch.experiment.trials.trial_plan import Configuration


def skipped_trial(configuration: Configuration, reason: str) -> Trial:
    """A trial that was not run."""
    return Trial(asked=configuration.setting.name, values=dict(configuration.values), not_tried=reason)


def out_of_budget_reason(budget: float) -> str:
    """Why the last ones were not run, with ``--budget`` in seconds."""
    return f"no time left within --budget {hours_minutes(budget)}"


@dataclass(slots=True)
class TryResult:
    """Trials and their answer."""

    trials: list[Trial] = field(default_factory=list)
    answer: Answer = field(default_factory=lambda: Answer(sentence="Nothing was run"))
    stop_rule: str = ""
    """When a measurement ended, in words, where that is not the rule that was asked for."""
    largest: Largest | None = None
    rounds: int = 0
    """Rounds that were completed."""
    fits: list[Fit] = field(default_factory=list)
    needed_bytes: tuple[int, int] | None = None
    """Bytes with which it fails, and with which it runs."""
    recoveries: list[Recovery] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    steps: int | None = None
    """Steps of each run, as the first that got so far has set them."""
    interrupted: int | None = None
    """Number of the signal that interrupted the experiment; None if none did."""

    @contextmanager
    def until_interrupted(self) -> Iterator[None]:
        """Ctrl+C ends what is within: the trial that it cut short is kept, and ``interrupted`` says which signal."""
        try:
            yield
        except Interrupted as interruption:
            self.trials += [interruption.trial] if interruption.trial is not None else []
            self.interrupted = interruption.number
        except KeyboardInterrupt:
            self.interrupted = signal.SIGINT
