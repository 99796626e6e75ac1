"""Whether the program would run on a smaller card (``--fits``): bisects the memory that it needs.

On simulated GPUs each run has cards of another size. On a real GPU each run has another limit of the framework's
allocator; what a card does not hand out to it (the driver's part, the CUDA context, what TensorFlow leaves free) is
taken to be as on this card.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.try_results import Answer, Experiment, Fit, Trial
from gpuwatch.experiment.trials.trial import Goal, run_trial
from gpuwatch.experiment.trials.trial_plan import Configuration, StopRule
from gpuwatch.experiment.trials.trial_results import PASSED_VERDICTS, why_failed
from gpuwatch.experiment.trials.trial_settings import find_setting
from gpuwatch.experiment.trials.trial_setup import TrialSetup, running_feed
from gpuwatch.sim.libraries import Tier
from gpuwatch.sim.machine_shape import MIN_MEMORY_BYTES, SimShape, parse_memory
from gpuwatch.sim.simulated_machine import SimMachine
from gpuwatch.sim.state_files import private_name

CLOSE_SHARE = 0.05
"""Share by which the memory that passes may exceed the memory that fails."""
_MIB = 1 << 20
_MAX_RUNS = 12
"""Runs of one bisection."""
_NOT_SIMULATED_NOTE = (
    "A simulated card has neither realistic CUDA contexts nor cuDNN and cuBLAS workspaces: leave a few hundred MiB."
)


def parse_cards(text: str) -> tuple[tuple[str, int], ...]:
    """Labels and bytes of ``16GiB,24GiB``, the smallest first; UsageError for what is no size."""
    bytes_by_label = {}
    for word in text.split(","):
        label = word.strip()
        bytes_by_label[label] = parse_memory(label)
    return tuple(sorted(bytes_by_label.items(), key=lambda entry: entry[1]))


class _CardProvider(Protocol):
    """How a run gets a card, or a limit, of some size."""

    note: str

    def run(self, amount: int, goal: Goal) -> Trial:
        """Runs the program with this many bytes."""
        ...

    def available_on(self, card: int) -> int:
        """What a card of this size leaves to the program, in the bytes that :meth:`run` takes."""
        ...


class _SimulatedCards:
    note = _NOT_SIMULATED_NOTE

    def __init__(self, setup: TrialSetup, configuration: Configuration, count: int) -> None:
        self._setup, self._configuration, self._count = setup, configuration, count
        self._tier: Tier = "plugin" if setup.simulation == "plugin" else "driver"

    def run(self, amount: int, goal: Goal) -> Trial:
        amount = max(amount // _MIB * _MIB, MIN_MEMORY_BYTES)
        with _setup_with_card(self._setup, SimShape(self._count, amount), self._tier) as setup:
            trial = run_trial(setup, self._configuration, goal, no_retry=True)
            self._setup.started_count = setup.started_count
        return trial

    def available_on(self, card: int) -> int:
        return card


@contextmanager
def _setup_with_card(setup: TrialSetup, shape: SimShape, tier: Tier) -> Iterator[TrialSetup]:
    machine = SimMachine.open(shape, name=private_name(), tier=tier)
    try:
        simulated_environment = machine.environment(os.environ)
        changed = {name: value for name, value in simulated_environment.items() if os.environ.get(name) != value}
        with running_feed(simulated_environment) as feed:
            yield replace(setup, feed=feed, machine=feed.fresh(5.0), variables={**setup.variables, **changed})
    finally:
        machine.remove()


class _AllocatorLimits:
    """Limits of the framework's allocator on the GPU that is here."""

    def __init__(self, setup: TrialSetup, framework: str, first_run: Run) -> None:
        self._setup, self._framework = setup, framework
        self._total = first_run.memory.device_total_bytes or 0
        granted_bytes = first_run.memory.allocator_limit_bytes
        self._unavailable_bytes = (
            max(self._total - granted_bytes, 0) if granted_bytes else first_run.memory.driver_reserved_bytes or 0
        )
        self.note = f"A card is assumed to provide its memory less {size(self._unavailable_bytes)}, as this one does."
        if not granted_bytes:
            self.note = "The CUDA context and the workspaces of libraries are not counted: leave a few hundred MiB."

    def run(self, amount: int, goal: Goal) -> Trial:
        setting_name = f"fraction={min(amount / self._total, 1.0):.4f}"
        if self._framework == "tensorflow":
            setting_name = f"limit={max(amount // _MIB, 1)}MiB"
        return run_trial(self._setup, Configuration(find_setting(setting_name)), goal, no_retry=True)

    def available_on(self, card: int) -> int:
        return card - self._unavailable_bytes


def find_smaller_card(
    setup: TrialSetup,
    configuration: Configuration,
    cards: Sequence[tuple[str, int]],
    stop_rule: StopRule,
    *,
    budget: float,
) -> None:
    """Bisects the memory that the program needs, and names the smallest of ``cards`` (label and bytes) that has it."""
    if setup.simulated and cards[0][1] < MIN_MEMORY_BYTES:
        hint = f"{size(MIN_MEMORY_BYTES)} is the smallest"
        raise UsageError(f"--fits {cards[0][0]}: no such card can be simulated", hint=hint)
    with setup.until_interrupted():
        _bisect(setup, configuration, cards, stop_rule, budget)
    if setup.interrupted is not None:
        setup.experiment.answer = Answer(sentence="Interrupted: the memory that it needs is not known yet")


def _bisect(
    setup: TrialSetup,
    configuration: Configuration,
    cards: Sequence[tuple[str, int]],
    stop_rule: StopRule,
    budget: float,
) -> None:
    experiment, budget_ends_at = setup.experiment, time.monotonic() + budget
    largest_bytes = cards[-1][1]
    if setup.simulated:
        count = len(setup.machine.devices) if setup.machine is not None else 1
        provider: _CardProvider = _SimulatedCards(setup, configuration, max(count, 1))
        first_trial = provider.run(largest_bytes, Goal(stop_rule, deadline=budget / 2))
    else:
        first_trial = run_trial(setup, configuration, Goal(stop_rule, deadline=budget / 2))
    experiment.trials += (_labeled_with_memory(first_trial, largest_bytes if setup.simulated else None),)
    run = first_trial.run
    assert run is not None
    if run.verdict not in PASSED_VERDICTS:
        where = f"on a card of {size(largest_bytes)}" if setup.simulated else "on this card"
        experiment.answer = Answer(sentence=f"It fails {where}: {why_failed(run)}")
        if setup.simulated and run.verdict == "oom":
            experiment.fits = tuple(
                Fit(card=label, bytes=amount, fits=False, tried=amount == largest_bytes) for label, amount in cards
            )
        return
    if not run.device_map:
        raise UsageError("--fits: the program used no GPU", hint="it must use TensorFlow or PyTorch on one")
    if not setup.simulated:
        provider = _AllocatorLimits(setup, run.framework.name if run.framework is not None else "", run)
    goal = Goal(stop_rule, first_trial.steps if first_trial.ended_by != "the program" else None, budget / 2)
    bisection = _Bisection(provider, goal, budget_ends_at, experiment, {provider.available_on(largest_bytes): True})
    min_bytes = run.memory.allocator_peak_bytes or 0  # TensorFlow does not report that of a session
    try:
        bisection.narrow(min_bytes, provider.available_on(largest_bytes), MIN_MEMORY_BYTES if setup.simulated else _MIB)
    except _BudgetSpent:
        experiment.notes += (f"--budget {hours_minutes(budget)} ended the search early.",)
    experiment.answer = Answer(sentence=bisection.judge_cards(cards, first_trial))
    experiment.notes += (provider.note,)


class _BudgetSpent(Exception):
    """Raised when the time budget is used up."""


@dataclass(slots=True)
class _Bisection:
    """Runs the program with one amount of memory after another."""

    provider: _CardProvider
    goal: Goal
    budget_ends_at: float
    experiment: Experiment
    passed: dict[int, bool]
    """Whether the program passed, by bytes."""
    low: int = 0
    high: int = 0
    """Bytes that fail (or are too few) and bytes that pass, at most 5 % more."""

    def passes(self, amount: int) -> bool:
        if amount not in self.passed:
            if time.monotonic() > self.budget_ends_at:
                raise _BudgetSpent
            trial = self.provider.run(amount, self.goal)
            self.experiment.trials += (_labeled_with_memory(trial, amount),)
            run = trial.run
            if run is None or trial.overridden or trial.not_tried:
                raise UsageError(
                    f"--fits: the program sets its own memory limit (at {trial.overridden})"
                    if trial.overridden
                    else f"--fits: no limit can be set: {trial.not_tried}"
                )
            out_of_memory = run.verdict == "oom" or bool(run.ooms) or (run.primary or "").startswith("memory.")
            self.passed[amount] = run.verdict in PASSED_VERDICTS
            if not self.passed[amount] and not out_of_memory:
                raise GpuwatchError(f"--fits: it failed for another reason: {why_failed(run)}")
        return self.passed[amount]

    def narrow(self, min_bytes: int, most: int, precision: int) -> None:
        """Moves the limits towards each other; ``min_bytes``: what its tensors take."""
        self.low, self.high = max(min(min_bytes, most), 0), most
        # Mostly it needs little more than its tensors.
        guess = max(int(min_bytes * 1.1) // _MIB * _MIB, precision) if min_bytes else 0
        for _ in range(_MAX_RUNS):
            if self.high <= max(self.low * (1 + CLOSE_SHARE), precision):
                break
            tried = guess if self.low < guess < self.high else (self.low + self.high) // 2 // _MIB * _MIB
            guess = 0 if tried != guess else int(guess * 1.25) // _MIB * _MIB
            if self.passes(tried):
                self.high, guess = tried, 0
            else:
                self.low = tried

    def judge_cards(self, cards: Sequence[tuple[str, int]], first_trial: Trial) -> str:
        """Notes which cards have what it needs; the answer in a sentence."""
        smallest = None
        for label, amount in cards:
            available = self.provider.available_on(amount)
            fits: bool | None = available > self.low
            if smallest is None and fits:
                try:
                    fits = self.passes(available)  # the answer is what was run, not what follows from other runs
                except _BudgetSpent:
                    fits = True if available >= self.high else None
            if fits and smallest is None:
                smallest = label
            self.experiment.fits += (Fit(card=label, bytes=amount, fits=fits, tried=available in self.passed),)
        self.experiment.needed_bytes = (self.low, self.high)
        is_close = self.high - self.low <= self.low * CLOSE_SHARE * 1.01
        how_far = "to its end" if first_trial.ended_by == "the program" else f"for {first_trial.covered}"
        need = f"it needs {'' if is_close else 'at most '}{size(self.high)}, {how_far}"
        return f"None of the cards is large enough: {need}" if smallest is None else f"{smallest} is enough: {need}"


def _labeled_with_memory(trial: Trial, amount: int | None) -> Trial:
    """The trial with the memory that it had."""
    values = trial.values if amount is None else {**trial.values, "memory": f"{amount // _MIB}MiB"}
    return msgspec.structs.replace(trial, values=values)
