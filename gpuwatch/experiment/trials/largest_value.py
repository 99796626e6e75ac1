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
from gpuwatch.experiment.trials.trial import Goal, ran_on_cpu, run_trial, why_on_cpu
from gpuwatch.experiment.trials.trial_plan import (
    MAX_SECONDS_WITHOUT_STEPS,
    SIMULATED_STEPS,
    Configuration,
    StopRule,
    check_placeholder,
)
from gpuwatch.experiment.trials.trial_results import PASSED_VERDICTS, why_failed
from gpuwatch.experiment.trials.trial_settings import TrialSetting
from gpuwatch.experiment.trials.trial_setup import TrialSetup

CONFIRMING_RUNS = 2
"""Runs that confirm the largest value, and that the next one fails."""
_MAX_RESUMES = 5
"""Times that the search goes on after a value did not confirm it."""
_MIN_RUN_SECONDS = 10.0
"""Seconds that a run has at least."""
SEARCH_RULE = StopRule("steps", SIMULATED_STEPS, uncounted_seconds=MAX_SECONDS_WITHOUT_STEPS)
"""When a run of the search ends: by then, a step has taken all the memory that it needs."""
_FULL_SHARE = 0.98
"""Share of the limit from which on an allocator hands out whole chunks, more than was asked for."""
_MIN_FITTED_VALUES = 3
"""Values that a line is drawn through, at least."""
_RANGE_PATTERN = re.compile(r"([A-Za-z_]\w*)=(\d{1,12})\.\.(\d{1,12})(?::(\d{1,12}))?")


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The values among which the largest that fits is searched: ``BATCH=32..4096``, ``BATCH=32..4096:32``."""

    name: str
    low: int
    high: int
    step: int = 1

    def aligned(self, value: int) -> int:
        """The value of the range at or below ``value``."""
        return self.low + (min(value, self.high) - self.low) // self.step * self.step

    @property
    def max_runs(self) -> int:
        """How often the program runs at most, if every value confirms what was found."""
        doubled = max(self.high // max(self.low, 1), 2).bit_length()
        halved = ((self.high - self.low) // self.step).bit_length()
        return doubled + halved + 2 * CONFIRMING_RUNS + 1


def parse_value_range(text: str, command: Sequence[str]) -> ValueRange:
    """``BATCH=32..4096``, ``BATCH=32..4096:32`` (in steps of 32).

    Raises:
        UsageError: it is no range, or the command has no ``{BATCH}``.
    """
    match = _RANGE_PATTERN.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--largest {text}: not understood", hint="for example --largest BATCH=32..4096")
    check_placeholder(match[1], command, f"--largest {text}")
    value_range = ValueRange(match[1], int(match[2]), int(match[3]), int(match[4] or 1))
    if value_range.step < 1 or value_range.high - value_range.low < value_range.step:
        raise UsageError(f"--largest {text}: no values to choose from", hint="the first must be smaller than the last")
    return value_range


RunsWithValue = Callable[[int, bool], bool]
"""Runs the program with a value, to search or (True) to confirm; whether it passed."""


class Search:
    """Doubles the value until it fails, bisects, and confirms what was found.

    Runs that confirm are as a user would run the program; those of the search may fail where such a run just passes.
    """

    def __init__(self, value_range: ValueRange, passes: RunsWithValue) -> None:
        self._value_range = value_range
        self._passes = passes
        self._search_results: dict[int, list[bool]] = {}
        self._confirming_results: dict[int, list[bool]] = {}
        self.confirmed = False
        """Whether the largest value passed, and the next one failed, each time they were run to confirm it."""

    def run(self) -> None:
        """Finds the border. What ``passes`` raises ends it; what is known then stays."""
        confirming = False
        for _ in range(_MAX_RESUMES):
            self._narrow(confirm=confirming)
            largest_passing, smallest_failing = self.border()
            if largest_passing is not None and not all(self._confirm(largest_passing)):
                continue
            if smallest_failing is not None and all(self._confirm(smallest_failing)):
                confirming = True  # the search was too strict: it goes on as a user would
                continue
            border = [value for value in (largest_passing, smallest_failing) if value is not None]
            self.confirmed = not any(map(self._results_differ, border))
            if smallest_failing is not None:  # does a larger value fail too?
                larger_value = self._value_range.aligned(
                    max(smallest_failing + smallest_failing // 4, smallest_failing + self._value_range.step)
                )
                if larger_value > smallest_failing == max(self._tried_values()):
                    self._run_value(larger_value, confirm=False)
            return

    def border(self) -> tuple[int | None, int | None]:
        """The largest value that passed below the smallest one that failed, and that one; None where there is none."""
        values = self._tried_values()
        smallest_failing = min((value for value in values if not self._passed(value)), default=None)
        below = [value for value in values if smallest_failing is None or value < smallest_failing]
        return max(filter(self._passed, below), default=None), smallest_failing

    def contradictions(self) -> list[str]:
        """Values that passed above one that failed, and those that did both."""
        name, (_, smallest_failing) = self._value_range.name, self.border()
        contradictions = []
        for value in self._tried_values():
            results = self._results(value)
            if self._results_differ(value):
                contradictions.append(f"{name}={value} passed {results.count(True)} of {len(results)} times")
            elif smallest_failing is not None and value > smallest_failing and results[0]:
                contradictions.append(f"{name}={smallest_failing} failed, {name}={value} passed")
        return contradictions

    def _tried_values(self) -> list[int]:
        return sorted({*self._search_results, *self._confirming_results})

    def _results(self, value: int) -> list[bool]:
        return self._confirming_results.get(value) or self._search_results[value]

    def _passed(self, value: int) -> bool:
        return all(self._results(value))

    def _results_differ(self, value: int) -> bool:
        return len(set(self._results(value))) > 1

    def _run_value(self, value: int, *, confirm: bool) -> None:
        passed = self._passes(value, confirm)
        (self._confirming_results if confirm else self._search_results).setdefault(value, []).append(passed)

    def _confirm(self, value: int) -> list[bool]:
        while len(self._confirming_results.get(value, [])) < CONFIRMING_RUNS:
            self._run_value(value, confirm=True)
        return self._confirming_results[value]

    def _narrow(self, *, confirm: bool) -> None:
        """Tries values until one that passes stands directly below one that fails."""
        value_range = self._value_range
        while True:
            largest_passing, smallest_failing = self.border()
            if largest_passing is None and smallest_failing in (None, value_range.low):
                if smallest_failing == value_range.low:
                    return
                value = value_range.low
            elif smallest_failing is None:
                assert largest_passing is not None
                value = value_range.aligned(max(2 * largest_passing, largest_passing + value_range.step))
                if value <= largest_passing:
                    return
            else:
                low = value_range.low if largest_passing is None else largest_passing
                value = value_range.aligned((smallest_failing + low) // 2)
                if largest_passing is not None and value <= largest_passing:
                    return
            self._run_value(value, confirm=confirm)


class _SearchEnded(Exception):
    """The search cannot go on; the text says why."""


@dataclass(slots=True)
class _ValueRuns:
    """Runs the program with one value after another."""

    setup: TrialSetup
    setting: TrialSetting
    value_range: ValueRange
    user_rule: StopRule | None
    """When a run ends, if the user said so."""
    budget_ends_at: float
    confirmed_values: list[int] = field(default_factory=list)
    """Values that were run to confirm them."""
    describe_border: Callable[[], str] = str
    """Describes what is known so far."""

    def passes(self, value: int, confirm: bool) -> bool:
        """Whether the program runs with ``value``; False if GPU memory runs out."""
        remaining = self.budget_ends_at - time.monotonic()
        if remaining <= 0:
            raise _SearchEnded("no time left within --budget")
        stop_rule = self.user_rule or SEARCH_RULE
        experiment = self.setup.experiment
        if any(trial.steps for trial in experiment.trials):
            # Its steps can be counted: a large value only takes longer.
            stop_rule = replace(stop_rule, uncounted_seconds=None)
        if confirm and self.user_rule is None and value not in self.confirmed_values:
            # To its end, if there is time for that; never less than a run of the search.
            stop_rule = replace(
                stop_rule,
                min_step_seconds=remaining / 3,
                uncounted_seconds=stop_rule.uncounted_seconds and max(stop_rule.uncounted_seconds, remaining / 3),
            )
        if confirm:
            self.confirmed_values.append(value)
        values = {self.value_range.name: str(value)}
        times_run = sum(trial.values == values for trial in experiment.trials) + 1
        goal = Goal(stop_rule, deadline=max(remaining, _MIN_RUN_SECONDS))
        self.setup.progress.show_note(self.describe_border())
        trial = run_trial(self.setup, Configuration(self.setting, values), goal, times_run, no_retry=not confirm)
        experiment.trials += (trial,)
        run = trial.run
        assert run is not None
        if trial.overridden or trial.not_tried:
            where = f"overridden at {trial.overridden}" if trial.overridden else trial.not_tried
            raise _SearchEnded(f"{self.setting.name} was not what ran: {where}")
        if run.verdict == "oom":
            return False
        if ran_on_cpu(run) and (trial.steps or trial.ended_by == "the program"):
            raise _SearchEnded(f"{trial.name} used no GPU: {why_on_cpu(run)}")
        ended_by_itself = trial.ended_by in ("the program", "success")
        cut_short = not ended_by_itself and stop_rule.kind == "steps" and 0 < (trial.steps or 0) < stop_rule.amount
        if run.verdict in PASSED_VERDICTS and not cut_short:
            return True
        if run.verdict == "timeout" or cut_short:
            raise _SearchEnded(f"--budget ended before {trial.name} was known to pass")
        raise _SearchEnded(f"{trial.name} failed, but not for lack of GPU memory: {why_failed(run)}")


def find_largest_value(
    setup: TrialSetup, setting: TrialSetting, value_range: ValueRange, rule: StopRule | None, *, budget: float
) -> None:
    """Looks for the largest value with which the program runs under ``setting``.

    ``rule``: when a run ends; None: after a few steps, one confirming run at the program's own end if there is time.
    ``budget``: seconds in all.
    """
    runs = _ValueRuns(setup, setting, value_range, rule, time.monotonic() + budget)
    search = Search(value_range, runs.passes)
    runs.describe_border = lambda: _border_text(value_range, *search.border())
    experiment = setup.experiment
    experiment.rule = str(rule or SEARCH_RULE)
    why_stopped = ""
    with setup.until_interrupted():
        try:
            search.run()
        except _SearchEnded as ended:
            why_stopped = str(ended)
    if setup.interrupted is not None:
        why_stopped = "interrupted"
    contradictions = search.contradictions()
    if contradictions:
        experiment.notes += (f"Not monotonic: {'; '.join(contradictions)}.",)
    largest = experiment.largest = _largest_result(value_range, setting, search, experiment.trials)
    experiment.answer = Answer(
        sentence=_largest_sentence(value_range, largest, why_stopped),
        best=setting.name if setting.code and largest.value is not None else "",
        code=setting.code_lines if largest.value is not None else (),
    )


@dataclass(frozen=True, slots=True)
class FittedLine:
    """Bytes by value: ``slope * value + offset``, at most ``error`` off."""

    slope: float
    offset: float
    error: float


def _largest_result(value_range: ValueRange, setting: TrialSetting, search: Search, trials: Sequence[Trial]) -> Largest:
    value, failing = search.border()
    with_value = [trial for trial in trials if trial.values.get(value_range.name) == str(value)]
    longest = max(with_value, key=lambda trial: (trial.ended_by == "the program", trial.steps or 0), default=None)
    runs = [(int(trial.values[value_range.name]), trial.run) for trial in trials if trial.run is not None]
    peaks = [
        (number, peak, _allocator_limit(run))
        for number, run in runs
        if run.verdict in PASSED_VERDICTS and (peak := run.memory.allocator_peak_bytes)
    ]
    line = fitted_line([(number, peak) for number, peak, limit in peaks if limit is None or peak < _FULL_SHARE * limit])
    line = line or fitted_line([(number, peak) for number, peak, _ in peaks])
    headrooms = [limit - peak for number, peak, limit in peaks if number == value and limit is not None]
    limits = [limit for _, run in runs if (limit := _allocator_limit(run)) is not None]
    return Largest(
        name=value_range.name,
        value=value,
        first_failing=failing,
        asked=setting.name,
        confirmed=search.confirmed,
        monotonic=not search.contradictions(),
        covered="" if longest is None else longest.covered,
        short_bytes=_shortage_bytes(failing, runs, line, max(limits, default=None)),
        bytes_per_unit=None if line is None else line.slope,
        fixed_bytes=None if line is None else round(line.offset),
        fit_error_bytes=None if line is None else round(line.error),
        headroom_bytes=min(headrooms, default=None),
    )


def fitted_line(value_peaks: Sequence[tuple[int, int]]) -> FittedLine | None:
    """The line of least squares through amounts of memory by value; None for fewer than 3 different values."""
    if len({value for value, _ in value_peaks}) < _MIN_FITTED_VALUES:
        return None
    slope, offset = statistics.linear_regression([value for value, _ in value_peaks], [peak for _, peak in value_peaks])
    return FittedLine(slope, offset, max(abs(peak - slope * value - offset) for value, peak in value_peaks))


def _allocator_limit(run: Run) -> int | None:
    """What the allocator may take, in bytes."""
    granted = max((device.granted_bytes or 0 for device in run.device_map), default=0)
    return run.memory.allocator_limit_bytes or granted or None


def _shortage_bytes(
    failing: int | None, runs: Sequence[tuple[int, Run]], line: FittedLine | None, limit: int | None
) -> int | None:
    """By how much the allocation that failed exceeds what was free, else the line what there is; None if unknown."""
    shortages = [
        oom.requested_bytes - oom.free_bytes
        for value, run in runs
        for oom in run.ooms
        if value == failing and oom.requested_bytes is not None and oom.free_bytes is not None
    ]
    if shortages:
        return shortages[-1] if shortages[-1] > 0 else None  # fragmented: enough is free, but not in one piece
    if failing is None or line is None or limit is None:
        return None
    excess = line.slope * failing + line.offset - limit
    return round(excess) if excess > line.error else None


def _largest_sentence(value_range: ValueRange, result: Largest, why_stopped: str) -> str:
    name, times = value_range.name, f"{CONFIRMING_RUNS} of {CONFIRMING_RUNS}"
    setting = f" with {result.asked}" if result.asked != "default" else ""
    unconfirmed = f"; not confirmed: {why_stopped or 'runs with the same value differ'}"
    if result.value is None:
        if result.first_failing is None:
            return f"It is not known which {name} from {value_range.low} to {value_range.high} fits: {why_stopped}"
        sentence = f"Even {name}={result.first_failing} does not fit{setting}"
        return sentence + (f" (failed {times})" if result.confirmed else unconfirmed) + _shortage_text(result)
    if result.first_failing is not None and result.first_failing > result.value + value_range.step:
        parts = [
            f"The largest {name} that fits{setting} is at least {result.value} and below {result.first_failing}",
            *_estimated_value(result, result.first_failing),
        ]
    elif result.first_failing is not None:
        parts = [f"{name}={result.value} is the largest that fits{setting}"]
    elif result.value == value_range.aligned(value_range.high):
        parts = [f"{name}={result.value} fits{setting}, the largest that was requested"]
    else:
        parts = [
            f"{name}={result.value} fits{setting}; larger values are not known",
            *_estimated_value(result, value_range.high),
        ]
    if result.confirmed:
        parts[0] += f" (passed {times}, {result.covered})"
    if result.first_failing is not None:
        failed = f" {times}" if result.confirmed else ""
        parts.append(f"{name}={result.first_failing} fails{failed}{_shortage_text(result)}")
    if result.bytes_per_unit is not None and result.bytes_per_unit > 0:
        parts.append(f"each one more takes {size(result.bytes_per_unit)}")
    if result.headroom_bytes:
        parts.append(f"{size(result.headroom_bytes)} are free")
    return "; ".join(parts) + ("" if result.confirmed else unconfirmed)


def _estimated_value(result: Largest, below: int) -> list[str]:
    """Where the line through the peaks meets the limit, if that is below what is known."""
    if result.value is None or not result.bytes_per_unit or result.bytes_per_unit <= 0 or result.headroom_bytes is None:
        return []
    estimated = result.value + int(result.headroom_bytes / result.bytes_per_unit)
    return (
        [f"judging by the memory of its runs, hardly more than {estimated}"] if result.value < estimated < below else []
    )


def _border_text(value_range: ValueRange, largest_passing: int | None, smallest_failing: int | None) -> str:
    """``known so far: BATCH=64 fits, BATCH=128 does not``; empty before the first run."""
    parts = [f"{value_range.name}={largest_passing} fits"] if largest_passing is not None else []
    parts += [f"{value_range.name}={smallest_failing} does not"] if smallest_failing is not None else []
    return f"known so far: {', '.join(parts)}" if parts else ""


def _shortage_text(result: Largest) -> str:
    return "" if result.short_bytes is None else f", {size(result.short_bytes)} too much"
