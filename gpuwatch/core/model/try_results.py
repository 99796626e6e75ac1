"""An experiment on a user's program: runs of it under several settings, compared. ``gpuwatch.try/1``."""

from __future__ import annotations

import datetime
from typing import Any, Literal

import msgspec

from gpuwatch.core.model.run import Run

EndedBy = Literal["the program", "success", "SIGINT", "SIGTERM", "SIGKILL"]


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """The median time of a step, and how sure it is."""

    median_seconds: float
    low_seconds: float
    """Lower end of the median's 95 % interval, by order statistics."""
    high_seconds: float
    """Upper end of the 95 % interval of the median."""
    timed: int
    """Number of step times, without warm-up."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the program under one setting, or the reason why there was none."""

    asked: str
    """Name of the setting as it was asked for: ``growth``, ``limit=6GiB``; ``default`` for none."""
    values: dict[str, str] = {}
    """Values of the varied names in the command, and the ``memory`` that a run of ``--fits`` had."""
    round: int = 0
    """Number of the round, from 1; 0 for a setting that was not tried."""
    copy: int = 0
    """Number among the copies that ran at once, from 1; 0 for a run alone."""
    not_tried: str = ""
    """Why the program was not run under this setting, or why the setting could not be applied in it."""
    run: Run | None = None
    """What was observed until the measurement ended; null if it was not tried."""
    applied: bool | None = None
    """Whether the setting reached the framework; null where that was not observed."""
    effective: dict[str, Any] = {}
    """Settings as the framework reports them after the setting was applied."""
    overridden: str = ""
    """Where the program sets the same itself: ``train.py:12``."""
    changes_results: bool = False
    """Whether the setting changes what the program computes (mixed precision, TF32, XLA)."""
    counted: str = ""
    """What counts as a step: ``batches of Keras``."""
    steps: int | None = None
    """Steps that the program did until the measurement ended; null if none could be counted."""
    step_time: StepTime | None = None
    """Time of a step; null if too few were timed."""
    ended_by: EndedBy | None = None
    """What ended the program; a signal was sent only after the measurement had ended."""
    covered: str = ""
    """What of the program ran: ``200 steps, no validation seen``, ``the whole program``; validations are Keras's."""
    recorded: bool = False
    """Whether the framework's recorder was on (``--memory``), which slows a program down: its speed does not count."""
    output: str = ""
    """File with the program's output; empty if it was not kept."""

    @property
    def name(self) -> str:
        """``growth``, ``growth BATCH=32``, ``BATCH=32``."""
        return configuration_name(self.asked, self.values)


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a setting lets a program run that ran out of memory."""

    name: str
    """Name of the setting."""
    passed: int = 0
    """Runs that passed where the program had failed."""
    runs: int = 0
    """Runs with this setting; 0 if it was not tried, or could not be applied."""
    verified: bool = False
    """Whether it passed, and then twice more."""
    reason: str = ""
    """Why it did not pass, or was not tried."""


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the program would run on a card of some size."""

    card: str
    """The card as it was asked for: ``16GiB``."""
    bytes: int
    """Its memory in bytes."""
    fits: bool | None
    """Whether the program runs on it; null where the budget ended before that was known."""
    tried: bool
    """Whether it was run with so much memory; otherwise it follows from runs with more or less."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the experiment found."""

    sentence: str
    best: str = ""
    """Name of the best setting; empty if none is better than another."""
    code: tuple[str, ...] = ()
    """Lines to paste to keep the best setting."""


class Largest(msgspec.Struct, frozen=True, kw_only=True):
    """The largest value of a name in the command with which the program runs (``--largest``)."""

    name: str
    value: int | None = None
    """None if even the smallest value fails, or nothing is known."""
    first_failing: int | None = None
    """The value after it, which fails; null if every value passed."""
    asked: str
    """The setting under which this holds."""
    confirmed: bool
    """Whether ``value`` passed, and ``first_failing`` failed, in two runs each after the search."""
    monotonic: bool
    """False if a larger value passed where a smaller one failed, or runs of one value differ."""
    covered: str = ""
    """What of the program the longest run with ``value`` covered: ``the whole program``, ``200 steps``."""
    short_bytes: int | None = None
    """By how much the allocation that fails with ``first_failing`` exceeds what is free; null if not known."""
    bytes_per_unit: float | None = None
    """Slope of a line through the allocator's peaks of the values that passed; null for fewer than three values."""
    fixed_bytes: int | None = None
    """The line's value at 0."""
    fit_error_bytes: int | None = None
    """Largest distance of a peak from the line."""
    headroom_bytes: int | None = None
    """What the allocator may still give out at its peak with ``value``."""


class Experiment(msgspec.Struct, kw_only=True, tag_field="schema", tag="gpuwatch.try/1"):
    """Runs of one program under several settings; filled in as they end."""

    command: str
    started_at: datetime.datetime
    took_seconds: float
    rule: str
    """When the measurement of each run ended, in words."""
    rounds: int = 0
    """Rounds that were completed."""
    trials: tuple[Trial, ...] = ()
    """Every run, in the order in which they were made, and what was not tried."""
    fits: tuple[Fit, ...] = ()
    """Cards that were asked about, the smallest first."""
    needed_bytes: tuple[int, int] | None = None
    """Memory with which the program fails, and with which it runs; null if it was not searched."""
    recover: tuple[Recovery, ...] = ()
    """After an out-of-memory failure: what became of each setting that might help."""
    answer: Answer
    largest: Largest | None = None
    """With ``--largest``: what it found."""
    notes: tuple[str, ...] = ()
    """What limits the comparison, one sentence each."""


def configuration_name(asked: str, values: dict[str, str]) -> str:
    """The name of a configuration: its setting, unless that is the default and values vary, and its values."""
    pairs = [f"{name}={value}" for name, value in values.items()]
    return " ".join([*([] if asked == "default" and pairs else [asked]), *pairs])
