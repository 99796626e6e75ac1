"""The largest value of a name in the command with which the program still runs (``--largest``)."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.try_results import Answer, Largest, Trial
from gpuwatch.experiment.trials.settings_comparison import why_failed
from gpuwatch.experiment.trials.trial import Goal, run_trial
from gpuwatch.experiment.trials.trial_plan import (
    SIMULATED_STEPS,
    UNCOUNTED_SECONDS,
    Configuration,
    Rule,
    check_placeholder,
)
from gpuwatch.experiment.trials.trial_settings import Setting
from gpuwatch.experiment.trials.trial_setup import TrialSetup
from gpuwatch.experiment.trials.trial_summary import PASSED
from gpuwatch.experiment.trials.try_result import TryResult

CONFIRMING_RUNS = 2
"""Runs that confirm the largest value, and that the next one fails."""
_MAX_RESUMES = 5
"""Times that the search goes on after a value did not confirm it."""
_MIN_RUN_SECONDS = 10.0
"""Seconds that a run has at least."""
SEARCHED = Rule("steps", SIMULATED_STEPS, uncounted=UNCOUNTED_SECONDS)
"""When a run of the search ends: by then, a step has taken all the memory that it needs."""
_FULL_SHARE = 0.98
"""Share of the limit from which on an allocator hands out whole chunks, more than was asked for."""
_MIN_FITTED_VALUES = 3
"""Values that a line is drawn through, at least."""
_RANGE = re.compile(r"([A-Za-z_]\w*)=(\d{1,12})\.\.(\d{1,12})(?::(\d{1,12}))?")


@dataclass(frozen=True, slots=True)
class Span:
    """The values among which the largest is looked for: ``BATCH=32..4096``, ``BATCH=32..4096:32``."""

    name: str
    low: int
    high: int
    step: int = 1

    def aligned(self, value: int) -> int:
        """The value of the span at or below ``value``."""
        return self.low + (min(value, self.high) - self.low) // self.step * self.step

    @property
    def runs(self) -> int:
        """How often the program runs at most, if every value confirms what was found."""
        doubled = max(self.high // max(self.low, 1), 2).bit_length()
        halved = ((self.high - self.low) // self.step).bit_length()
        return doubled + halved + 2 * CONFIRMING_RUNS + 1


def parse_span(text: str, command: Sequence[str]) -> Span:
    """``BATCH=32..4096``, ``BATCH=32..4096:32`` (in steps of 32).

    Raises:
        UsageError: it is no range, or the command has no ``{BATCH}``.
    """
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--largest {text}: not understood", hint="for example --largest BATCH=32..4096")
    check_placeholder(found[1], command, f"--largest {text}")
    span = Span(found[1], int(found[2]), int(found[3]), int(found[4] or 1))
    if span.step < 1 or span.high - span.low < span.step:
        raise UsageError(f"--largest {text}: no values to choose from", hint="the first must be smaller than the last")
    return span


Passes = Callable[[int, bool], bool]
"""Runs the program with a value, to search or (True) to confirm; whether it passed."""


class Search:
    """Doubles the value until it fails, bisects, and confirms what was found.

    Runs that confirm are as a user would run the program; those of the search may fail where such a run just passes.
    """

    def __init__(self, span: Span, passes: Passes) -> None:
        self._span = span
        self._passes = passes
        self._searched: dict[int, list[bool]] = {}
        self._confirming: dict[int, list[bool]] = {}
        self.confirmed = False
        """Whether the largest value passed, and the next one failed, each time they were run to confirm it."""

    def run(self) -> None:
        """Finds the border. What ``passes`` raises ends it; what is known then stays."""
        confirming = False
        for _ in range(_MAX_RESUMES):
            self._narrow(confirm=confirming)
            good, bad = self.border()
            if good is not None and not all(self._confirm(good)):
                continue
            if bad is not None and all(self._confirm(bad)):
                confirming = True  # the search was too strict: it goes on as a user would
                continue
            self.confirmed = not any(self._mixed(value) for value in (good, bad) if value is not None)
            if bad is not None:  # does a larger value fail too?
                further = self._span.aligned(max(bad + bad // 4, bad + self._span.step))
                if further > bad == max(self._known()):
                    self._try(further, confirm=False)
            return

    def border(self) -> tuple[int | None, int | None]:
        """The smallest value that failed, after the largest one below it that passed; None where there is none."""
        known = self._known()
        bad = min((value for value in known if not self._passed(value)), default=None)
        good = max((value for value in known if self._passed(value) and (bad is None or value < bad)), default=None)
        return good, bad

    def contradictions(self) -> list[str]:
        """Values that passed above one that failed, and those that did both."""
        name, (_, bad) = self._span.name, self.border()
        found = []
        for value in self._known():
            results = self._results(value)
            if self._mixed(value):
                found.append(f"{name}={value} passed {results.count(True)} of {len(results)} times")
            elif bad is not None and value > bad and results[0]:
                found.append(f"{name}={bad} failed, {name}={value} passed")
        return found

    def _known(self) -> list[int]:
        return sorted({*self._searched, *self._confirming})

    def _results(self, value: int) -> list[bool]:
        return self._confirming.get(value) or self._searched[value]

    def _passed(self, value: int) -> bool:
        return all(self._results(value))

    def _mixed(self, value: int) -> bool:
        return len(set(self._results(value))) > 1

    def _try(self, value: int, *, confirm: bool) -> None:
        passed = self._passes(value, confirm)
        (self._confirming if confirm else self._searched).setdefault(value, []).append(passed)

    def _confirm(self, value: int) -> list[bool]:
        while len(self._confirming.get(value, [])) < CONFIRMING_RUNS:
            self._try(value, confirm=True)
        return self._confirming[value]

    def _narrow(self, *, confirm: bool) -> None:
        """Tries values until one that passes stands directly below one that fails."""
        span = self._span
        while True:
            good, bad = self.border()
            if good is None and bad in (None, span.low):
                if bad == span.low:
                    return
                value = span.low
            elif bad is None:
                assert good is not None
                value = span.aligned(max(2 * good, good + span.step))
                if value <= good:
                    return
            else:
                value = span.aligned((bad + (span.low if good is None else good)) // 2)
                if good is not None and value <= good:
                    return
            self._try(value, confirm=confirm)


class _Stopped(Exception):
    """The search cannot go on; the text says why."""


@dataclass(slots=True)
class _Runs:
    """Runs the program with one value after another."""

    setup: TrialSetup
    setting: Setting
    span: Span
    rule: Rule | None
    """When a run ends, if the user said so."""
    until: float
    trials: list[Trial] = field(default_factory=list)
    confirming: list[int] = field(default_factory=list)
    """Values that were run to confirm them."""
    bracket: Callable[[], str] = str
    """Describes what is known so far."""

    def passes(self, value: int, confirm: bool) -> bool:
        """Whether the program runs with ``value``; False if GPU memory runs out."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise _Stopped("no time left within --budget")
        rule = self.rule or SEARCHED
        if any(trial.steps for trial in self.trials):
            rule = replace(rule, uncounted=None)  # its steps can be counted: a large value only takes longer
        if confirm and self.rule is None and value not in self.confirming:
            # To its end, if there is time for that; never less than a run of the search.
            rule = replace(rule, least=left / 3, uncounted=rule.uncounted and max(rule.uncounted, left / 3))
        if confirm:
            self.confirming.append(value)
        values = {self.span.name: str(value)}
        number = sum(trial.values == values for trial in self.trials) + 1
        goal = Goal(rule, deadline=max(left, _MIN_RUN_SECONDS))
        self.setup.progress.says(self.bracket())
        trial = run_trial(self.setup, Configuration(self.setting, values), goal, number, no_retry=not confirm)
        self.trials.append(trial)
        run = trial.run
        assert run is not None
        if trial.overridden or trial.not_tried:
            where = f"overridden at {trial.overridden}" if trial.overridden else trial.not_tried
            raise _Stopped(f"{self.setting.name} was not what ran: {where}")
        if run.verdict == "oom":
            return False
        by_itself = trial.ended_by in ("the program", "success")
        cut_short = not by_itself and rule.kind == "steps" and 0 < (trial.steps or 0) < rule.amount
        if run.verdict in PASSED and not cut_short:
            return True
        if run.verdict == "timeout" or cut_short:
            raise _Stopped(f"--budget ended before {trial.name} was known to pass")
        raise _Stopped(f"{trial.name} failed, but not for lack of GPU memory: {why_failed(run)}")


def largest(setup: TrialSetup, setting: Setting, span: Span, rule: Rule | None, *, budget: float) -> TryResult:
    """Looks for the largest value with which the program runs under ``setting``.

    ``rule``: when a run ends; None: after a few steps, one confirming run at the program's own end if there is time.
    ``budget``: seconds in all.
    """
    runs = _Runs(setup, setting, span, rule, time.monotonic() + budget)
    search = Search(span, runs.passes)
    runs.bracket = lambda: _known_bracket(span, *search.border())
    found = TryResult(trials=runs.trials, rule=str(rule or SEARCHED))
    stopped = ""
    with found.until_interrupted():
        try:
            search.run()
        except _Stopped as reason:
            stopped = str(reason)
    if found.interrupted is not None:
        stopped = "interrupted"
    contradictions = search.contradictions()
    if contradictions:
        found.notes.append(f"Not monotonic: {'; '.join(contradictions)}.")
    found.largest = _largest_result(span, setting, search, found.trials)
    found.answer = Answer(
        sentence=_sentence(span, found.largest, stopped),
        best=setting.name if setting.code and found.largest.value is not None else "",
        code=tuple(setting.code.splitlines()) if found.largest.value is not None else (),
    )
    return found


@dataclass(frozen=True, slots=True)
class Line:
    """Bytes by value: ``slope * value + offset``, at most ``error`` off."""

    slope: float
    offset: float
    error: float


def _largest_result(span: Span, setting: Setting, search: Search, trials: Sequence[Trial]) -> Largest:
    value, failing = search.border()
    of_value = [trial for trial in trials if trial.values.get(span.name) == str(value)]
    covered = max(of_value, key=lambda trial: (trial.ended_by == "the program", trial.steps or 0), default=None)
    runs = [(int(trial.values[span.name]), trial.run) for trial in trials if trial.run is not None]
    peaks = [
        (number, peak, _limit(run))
        for number, run in runs
        if run.verdict in PASSED and (peak := run.memory.allocator_peak_bytes)
    ]
    line = fitted_line([(number, peak) for number, peak, limit in peaks if limit is None or peak < _FULL_SHARE * limit])
    line = line or fitted_line([(number, peak) for number, peak, _ in peaks])
    rooms = [limit - peak for number, peak, limit in peaks if number == value and limit is not None]
    limits = [limit for _, run in runs if (limit := _limit(run)) is not None]
    return Largest(
        name=span.name,
        value=value,
        first_failing=failing,
        asked=setting.name,
        confirmed=search.confirmed,
        monotonic=not search.contradictions(),
        covered="" if covered is None else covered.covered,
        short_bytes=_shortage(failing, runs, line, max(limits, default=None)),
        bytes_per_unit=None if line is None else line.slope,
        fixed_bytes=None if line is None else round(line.offset),
        fit_error_bytes=None if line is None else round(line.error),
        headroom_bytes=min(rooms, default=None),
    )


def fitted_line(points: Sequence[tuple[int, int]]) -> Line | None:
    """The line of least squares through amounts of memory by value; None for fewer than 3 different values."""
    if len({value for value, _ in points}) < _MIN_FITTED_VALUES:
        return None
    slope, offset = statistics.linear_regression([value for value, _ in points], [peak for _, peak in points])
    return Line(slope, offset, max(abs(peak - slope * value - offset) for value, peak in points))


def _limit(run: Run) -> int | None:
    """What the allocator may take, in bytes."""
    granted = max((device.granted_bytes or 0 for device in run.device_map), default=0)
    return run.memory.allocator_limit_bytes or granted or None


def _shortage(failing: int | None, runs: Sequence[tuple[int, Run]], line: Line | None, limit: int | None) -> int | None:
    """By how much the allocation that failed exceeds what was free, else the line what there is; None if unknown."""
    known = [
        oom.requested_bytes - oom.free_bytes
        for number, run in runs
        for oom in run.ooms
        if number == failing and oom.requested_bytes is not None and oom.free_bytes is not None
    ]
    if known:
        return known[-1] if known[-1] > 0 else None  # fragmented: enough is free, but not in one piece
    if failing is None or line is None or limit is None:
        return None
    more = line.slope * failing + line.offset - limit
    return round(more) if more > line.error else None


def _sentence(span: Span, found: Largest, stopped: str) -> str:
    times = f"{CONFIRMING_RUNS} of {CONFIRMING_RUNS}"
    setting = f" with {found.asked}" if found.asked != "default" else ""
    unsure = f"; not confirmed: {stopped or 'runs with the same value differ'}"
    if found.value is None:
        if found.first_failing is None:
            return f"It is not known which {span.name} from {span.low} to {span.high} fits: {stopped}"
        sentence = f"Even {span.name}={found.first_failing} does not fit{setting}"
        return sentence + (f" (failed {times})" if found.confirmed else unsure) + _too_much(found)
    if found.first_failing is not None and found.first_failing > found.value + span.step:
        parts = [
            f"The largest {span.name} that fits{setting} is at least {found.value} and below {found.first_failing}",
            *_estimated_value(found, found.first_failing),
        ]
    elif found.first_failing is not None:
        parts = [f"{span.name}={found.value} is the largest that fits{setting}"]
    elif found.value == span.aligned(span.high):
        parts = [f"{span.name}={found.value} fits{setting}, the largest that was requested"]
    else:
        parts = [
            f"{span.name}={found.value} fits{setting}; larger values are not known",
            *_estimated_value(found, span.high),
        ]
    if found.confirmed:
        parts[0] += f" (passed {times}, {found.covered})"
    if found.first_failing is not None:
        failed = f" {times}" if found.confirmed else ""
        parts.append(f"{span.name}={found.first_failing} fails{failed}{_too_much(found)}")
    if found.bytes_per_unit is not None and found.bytes_per_unit > 0:
        parts.append(f"each one more takes {size(found.bytes_per_unit)}")
    if found.headroom_bytes:
        parts.append(f"{size(found.headroom_bytes)} are free")
    return "; ".join(parts) + ("" if found.confirmed else unsure)


def _estimated_value(found: Largest, below: int) -> list[str]:
    """Where the line through the peaks meets the limit, if that is below what is known."""
    if found.value is None or not found.bytes_per_unit or found.bytes_per_unit <= 0 or found.headroom_bytes is None:
        return []
    most = found.value + int(found.headroom_bytes / found.bytes_per_unit)
    return [f"judging by the memory of its runs, hardly more than {most}"] if found.value < most < below else []


def _known_bracket(span: Span, good: int | None, bad: int | None) -> str:
    """``known so far: BATCH=64 fits, BATCH=128 does not``; empty before the first run."""
    parts = [f"{span.name}={good} fits"] if good is not None else []
    parts += [f"{span.name}={bad} does not"] if bad is not None else []
    return f"known so far: {', '.join(parts)}" if parts else ""


def _too_much(found: Largest) -> str:
    return "" if found.short_bytes is None else f", {size(found.short_bytes)} too much"
