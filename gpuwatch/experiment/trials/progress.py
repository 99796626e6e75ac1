"""What an experiment tells while it runs: which trial, how far it is, what is known so far."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.core.model.trials import Trial


@dataclass(frozen=True, slots=True)
class Begun:
    """A trial that begins."""

    name: str
    number: int
    """Of all trials, from 1."""
    planned: int
    """How many there will be at most; 0 if that is not known."""
    round: int = 0
    """0 for a start that only shows which framework the program loads."""
    copy: int = 0
    recorded: bool = False


class Progress:
    """Called by the trials, by copies that run at once from several threads. This one tells nothing."""

    def says(self, text: str) -> None:
        """Something that is done between trials, or is known so far."""

    def begins(self, trial: Begun) -> None:
        """A trial begins."""

    def steps(self, count: int) -> None:
        """Steps of the trial that runs."""

    def ended(self, trial: Trial) -> None:
        """A trial is over."""

    def close(self) -> None:
        """The experiment is over, or was interrupted."""
