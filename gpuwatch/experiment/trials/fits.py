"""Whether the program would run on a smaller card (``--fits``): bisects the memory that it needs.

On simulated GPUs each run has cards of another size. On a real GPU each run has another limit of the framework's
allocator; what a card does not hand out to it (the driver's part, the CUDA context, what TensorFlow leaves free) is
taken to be as on this card.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.formatting.durations import lasted
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.trials import Answer, Fit, Trial
from gpuwatch.experiment.trials.best_setting import why_failed
from gpuwatch.experiment.trials.plan import Configuration, Rule
from gpuwatch.experiment.trials.result import ExperimentResult
from gpuwatch.experiment.trials.settings import Setting, named
from gpuwatch.experiment.trials.trial import Goal, run_trial
from gpuwatch.experiment.trials.trial_setup import TrialSetup, running_feed
from gpuwatch.experiment.trials.trial_summary import PASSED
from gpuwatch.sim.build import Tier
from gpuwatch.sim.machine import SimMachine
from gpuwatch.sim.shape import MIN_MEMORY_BYTES, SimShape, parse_size
from gpuwatch.sim.state_files import private_name

CLOSE = 0.05
"""Share by which the memory that passes may exceed the memory that fails."""
_MIB = 1 << 20
_MOST = 12
"""Runs of one bisection."""
_NOT_COUNTED = (
    "A simulated card has neither contexts of a real size nor workspaces of cuDNN and cuBLAS: leave some hundred MiB."
)


def parse_cards(text: str) -> tuple[tuple[str, int], ...]:
    """Labels and bytes of ``16GiB,24GiB``, the smallest first; UsageError for what is no size."""
    found = {}
    for part in text.split(","):
        label = part.strip()
        found[label] = parse_size(label)
    return tuple(sorted(found.items(), key=lambda entry: entry[1]))


class _Cards(Protocol):
    """How a run gets a card, or a limit, of some size."""

    note: str

    def run(self, amount: int, goal: Goal) -> Trial:
        """Runs the program with this many bytes."""
        ...

    def needs(self, card: int) -> int:
        """What a card of this size leaves to the program, in the bytes that :meth:`run` takes."""
        ...


class _SimulatedCards:
    note = _NOT_COUNTED

    def __init__(self, setup: TrialSetup, configuration: Configuration, count: int) -> None:
        self._setup, self._one, self._count = setup, configuration, count
        self._tier: Tier = "plugin" if setup.simulation == "plugin" else "driver"

    def run(self, amount: int, goal: Goal) -> Trial:
        amount = max(amount // _MIB * _MIB, MIN_MEMORY_BYTES)
        with _other_card(self._setup, SimShape(self._count, amount), self._tier) as setup:
            trial = run_trial(setup, self._one, goal, no_retry=True)
            self._setup.made = setup.made
        return trial

    def needs(self, card: int) -> int:
        return card


@contextmanager
def _other_card(setup: TrialSetup, shape: SimShape, tier: Tier) -> Iterator[TrialSetup]:
    machine = SimMachine.open(shape, name=private_name(), tier=tier)
    try:
        around = machine.environment(os.environ)
        changed = {name: value for name, value in around.items() if os.environ.get(name) != value}
        with running_feed(around) as feed:
            yield replace(setup, feed=feed, machine=feed.fresh(5.0), variables={**setup.variables, **changed})
    finally:
        machine.remove()


class _Limits:
    """Limits of the framework's allocator on the GPU that is here."""

    def __init__(self, setup: TrialSetup, framework: str, first: Run) -> None:
        self._setup, self._framework = setup, framework
        self._total = first.memory.device_total_bytes or 0
        granted = first.memory.allocator_limit_bytes
        self._beside = max(self._total - granted, 0) if granted else first.memory.driver_reserved_bytes or 0
        self.note = f"A card is taken to hand out its memory less {size(self._beside)}, as this one does."
        if not granted:
            self.note = "The CUDA context and the workspaces of libraries are not counted: leave some hundred MiB."

    def run(self, amount: int, goal: Goal) -> Trial:
        return run_trial(self._setup, Configuration(self._setting(amount)), goal, no_retry=True)

    def _setting(self, amount: int) -> Setting:
        if self._framework == "tensorflow":
            return named(f"limit={max(amount // _MIB, 1)}MiB")
        return named(f"fraction={min(amount / self._total, 1.0):.4f}")

    def needs(self, card: int) -> int:
        return card - self._beside


def fitted(
    setup: TrialSetup, configuration: Configuration, cards: Sequence[tuple[str, int]], rule: Rule, *, budget: float
) -> ExperimentResult:
    """Bisects the memory that the program needs, and names the smallest of ``cards`` (label and bytes) that has it."""
    if setup.simulated and cards[0][1] < MIN_MEMORY_BYTES:
        least = f"{size(MIN_MEMORY_BYTES)} is the smallest"
        raise UsageError(f"--fits {cards[0][0]}: no such card can be simulated", hint=least)
    found = ExperimentResult(rule=f"{rule}")
    until = time.monotonic() + budget
    with found.until_interrupted():
        _fit(setup, configuration, cards, rule, found, until, budget)
    if found.interrupted is not None:
        found.answer = Answer(sentence="Interrupted: the memory that it needs is not known yet")
    return found


def _fit(
    setup: TrialSetup,
    configuration: Configuration,
    cards: Sequence[tuple[str, int]],
    rule: Rule,
    found: ExperimentResult,
    until: float,
    budget: float,
) -> None:
    largest = cards[-1][1]
    if setup.simulated:
        count = len(setup.machine.devices) if setup.machine is not None else 1
        ways: _Cards = _SimulatedCards(setup, configuration, max(count, 1))
        first = ways.run(largest, Goal(rule, deadline=budget / 2))
    else:
        first = run_trial(setup, configuration, Goal(rule, deadline=budget / 2))
    found.trials.append(_labelled(first, largest if setup.simulated else None))
    run = first.run
    assert run is not None
    if run.verdict not in PASSED:
        failed = f"on a card of {size(largest)}" if setup.simulated else "on this card"
        found.answer = Answer(sentence=f"It fails {failed}: {why_failed(run)}")
        if setup.simulated and run.verdict == "oom":
            found.fits = [Fit(card=label, bytes=amount, fits=False, tried=amount == largest) for label, amount in cards]
        return
    if not run.device_map:
        raise UsageError("--fits: it used no GPU", hint="it must use TensorFlow or PyTorch on one")
    least = run.memory.allocator_peak_bytes or 0  # TensorFlow does not report that of a session
    if not setup.simulated:
        ways = _Limits(setup, run.framework.name if run.framework is not None else "", run)
    goal = Goal(rule, first.steps if first.ended_by != "the program" else None, budget / 2)
    passed: dict[int, bool] = {}

    def passes(amount: int) -> bool:
        if amount not in passed:
            if time.monotonic() > until:
                raise _Late
            trial = ways.run(amount, goal)
            found.trials.append(_labelled(trial, amount))
            if trial.run is None or trial.overridden or trial.not_tried:
                raise UsageError(
                    f"--fits: the program sets its own memory limit (at {trial.overridden})"
                    if trial.overridden
                    else f"--fits: no limit can be set: {trial.not_tried}"
                )
            if trial.run.verdict not in (*PASSED, "oom") and not _memory_failed(trial.run):
                raise GpuwatchError(f"--fits: it failed for another reason: {why_failed(trial.run)}")
            passed[amount] = trial.run.verdict in PASSED
        return passed[amount]

    upper = ways.needs(largest)
    passed[upper] = True
    low, high = _bisected(passes, least, upper, MIN_MEMORY_BYTES if setup.simulated else _MIB, found, budget)
    _name_cards(ways, cards, passes, passed, low, high, found, first)
    found.notes.append(ways.note)


class _Late(Exception):
    """The budget is used up."""


def _memory_failed(run: Run) -> bool:
    return bool(run.ooms) or (run.primary or "").startswith("memory.")


def _labelled(trial: Trial, amount: int | None) -> Trial:
    """The trial with the memory that it had."""
    from msgspec.structs import replace as changed

    return trial if amount is None else changed(trial, values={**trial.values, "memory": f"{amount // _MIB}MiB"})


def _bisected(
    passes: Callable[[int], bool], least: int, upper: int, smallest: int, found: ExperimentResult, budget: float
) -> tuple[int, int]:
    """Bytes that fail (or are too few) and bytes that pass, at most 5 % more."""
    low, high = max(min(least, upper), 0), upper
    try:
        # Mostly it needs little more than its tensors.
        guess = max(int(least * 1.1) // _MIB * _MIB, smallest) if least else 0
        for _ in range(_MOST):
            if high <= max(low * (1 + CLOSE), smallest):
                break
            middle = guess if low < guess < high else (low + high) // 2 // _MIB * _MIB
            guess = 0 if middle != guess else int(guess * 1.25) // _MIB * _MIB
            if passes(middle):
                high, guess = middle, 0
            else:
                low = middle
    except _Late:
        found.notes.append(f"--budget {lasted(budget)} ended the search early.")
    return low, high


def _name_cards(
    ways: _Cards,
    cards: Sequence[tuple[str, int]],
    passes: Callable[[int], bool],
    passed: dict[int, bool],
    low: int,
    high: int,
    found: ExperimentResult,
    first: Trial,
) -> None:
    smallest = None
    for label, amount in cards:
        has = ways.needs(amount)
        fits: bool | None = has > low
        if smallest is None and has > low:
            try:
                fits = passes(has)  # the answer is what was run, not what follows from other runs
            except _Late:
                fits = True if has >= high else None
        if fits and smallest is None:
            smallest = label
        found.fits.append(Fit(card=label, bytes=amount, fits=fits, tried=has in passed))
    found.needed = (low, high)
    for_what = "to its end" if first.ended_by == "the program" else f"for {first.covered}"
    need = f"it needs {size(high)}" if high - low <= low * CLOSE * 1.01 else f"it needs at most {size(high)}"
    none = f"None of the cards is large enough: {need}, {for_what}"
    found.answer = Answer(sentence=none if smallest is None else f"{smallest} is enough: {need}, {for_what}")
