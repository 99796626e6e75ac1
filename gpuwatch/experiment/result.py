"""What one form of ``gpuwatch try`` found."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuwatch.model.trials import Answer, Fit, Largest, Recovery, Trial


@dataclass(slots=True)
class ExperimentResult:
    """Trials and their answer."""

    trials: list[Trial] = field(default_factory=list)
    answer: Answer = field(default_factory=lambda: Answer(sentence="Nothing was run"))
    rule: str = ""
    """When a measurement ended, in words, where that is not the rule that was asked for."""
    largest: Largest | None = None
    rounds: int = 0
    """Rounds that were completed."""
    fits: list[Fit] = field(default_factory=list)
    needed: tuple[int, int] | None = None
    """Bytes with which it fails, and with which it runs."""
    recover: list[Recovery] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    steps: int | None = None
    """Steps of each run, as the first that got so far has set them."""
    interrupted: int | None = None
    """The signal that broke it off."""
