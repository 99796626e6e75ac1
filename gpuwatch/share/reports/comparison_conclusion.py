"""What a comparison shows, as one sentence with numbers: which run won in memory and speed, what failed and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuwatch.core.formatting.sentences import as_clause, name_list
from gpuwatch.core.formatting.units import UNKNOWN, per_second_text, size
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.run_comparison import Comparison
from gpuwatch.core.safe_text import shorten
from gpuwatch.experiment.trials.step_times import is_unreliable, speed_text
from gpuwatch.experiment.trials.trial_summary import SAME_MEMORY_SHARE
from gpuwatch.share.reports import comparable_runs
from gpuwatch.share.reports.report_elements import clean
from gpuwatch.share.reports.run_report import as_demonstrated
from gpuwatch.share.reports.runs_side_by_side import labels, named_once

_MAX_NAMES = 4
_MAX_REASONS = 2
_MAX_COMMAND_CHARS = 60
_ENDS = {"oom": "ran out of memory, as expected", "skipped": "{be} skipped", "interrupted": "{be} interrupted"}
_VARY = "step times vary by more than 10 %"


@dataclass(frozen=True, slots=True)
class _Better:
    """The best of the comparable runs in one respect, and the run that they are measured against."""

    winners: tuple[int, ...]
    best: str
    reference: int
    against: str
    alike: tuple[int, ...]
    """The runs of the same configuration as the reference with the same number."""


def run_failed(run: Run) -> bool:
    """Whether it failed; an out-of-memory that its configuration demonstrates is not a failure."""
    if run.verdict == "oom":
        return not as_demonstrated(run)
    return run.verdict in ("error", "timeout")


def conclusion(document: Comparison) -> str:
    """``growth: the same work in 326 MiB instead of 22.2 GiB; limit failed (out of memory)``.

    Memory is the peak of the process by NVML on its busiest device. Runs of other work or on another kind of device
    are not compared, and neither are speeds of simulated GPUs or speeds within noise of each other. Runs are
    measured against ``default`` where it was run and is worse, else against the worst.
    """
    runs = document.runs
    if not runs:
        return "No runs to compare"
    bad = [index for index, run in enumerate(runs) if run_failed(run)]
    told = _Sentences(runs, _names(runs))
    failures = told.failures(bad)
    if len(bad) == len(runs) > 1:
        return f"All {len(runs)} runs failed: {told.reasons(bad)}"
    if len(bad) == len(runs):
        return failures
    shown = told.completed(document.comparable)
    return f"{shown}; {failures}" if failures else shown


def _names(runs: Sequence[Run]) -> tuple[str, ...]:
    """The labels; runs of one configuration are named by version or machine if that is enough."""
    names = list(labels(runs))
    for index, run in enumerate(runs):
        alike = [other for other in runs if other.config == run.config]
        facts = tuple(fact for fact in comparable_runs.TELLING_APART if len({fact(other) for other in alike}) > 1)
        if facts and len({tuple(fact(other) for fact in facts) for other in alike}) == len(alike):
            names[index] = f"{clean(run.config)} ({', '.join(fact(run) for fact in facts)})"
    return tuple(names)


@dataclass(frozen=True, slots=True)
class _Sentences:
    """Sentences about some runs, which it names; runs are given by their index."""

    runs: Sequence[Run]
    names: Sequence[str]

    def failures(self, bad: Sequence[int]) -> str:
        """Who failed, and why if all failed for one reason: a headline has no room for several."""
        if not bad:
            return ""
        why = {_why_failed(self.runs[index]) for index in bad}
        return f"{self.who(bad)} failed{f' ({why.pop()})' if len(why) == 1 else ''}"

    def reasons(self, bad: Sequence[int]) -> str:
        """``a and b (out of memory); c (stopped at the deadline)``."""
        reasons = group_by(bad, lambda index: _why_failed(self.runs[index]))
        shown = [f"{self.who(who)} ({why})" for why, who in list(reasons.items())[:_MAX_REASONS]]
        rest = sum(len(who) for who in list(reasons.values())[_MAX_REASONS:])
        return "; ".join([*shown, *([f"{rest} more"] if rest else [])])

    def who(self, indices: Iterable[int]) -> str:
        return name_list(named_once(self.runs, self.names, indices))

    def completed(self, comparable: tuple[int, ...]) -> str:
        group = comparable or comparable_runs.comparable(self.runs)
        if len(group) > 1:
            return self.compared(group)
        ended = [index for index, run in enumerate(self.runs) if run.verdict in ("ok", "fallback")]
        if len(ended) == 1:
            alone = "; nothing to compare it with" if len(self.runs) == 1 else ""
            return _single_conclusion(self.runs[ended[0]], self.names[ended[0]]) + alone
        if ended:
            return self.not_comparable(ended)
        others = [index for index, run in enumerate(self.runs) if not run_failed(run)]
        rest = group_by(others, lambda index: "oom" if as_demonstrated(self.runs[index]) else self.runs[index].verdict)
        ends = ((self.who(indices), _ENDS[end]) for end, indices in rest.items())
        return "; ".join(f"{who} {end.format(be='were' if ' and ' in who else 'was')}" for who, end in ends)

    def not_comparable(self, ended: Sequence[int]) -> str:
        """Several runs completed, and no two of them can be compared."""
        timed = [index for index in ended if self.runs[index].throughput is not None]
        if not timed:
            peaks = ((self.names[index], _comparable_peak(self.runs[index])) for index in ended)
            held = [f"{name} held {size(peak)}" for name, peak in peaks if peak is not None]
            return "; ".join(filter(None, (", ".join(held[:_MAX_NAMES]), "not compared, as no speed was measured")))
        kinds = group_by(timed, lambda index: comparable_runs.device_kind(self.runs[index]))
        work = group_by(timed, lambda index: comparable_runs.workload(self.runs[index]))
        if len(kinds) > 1:
            why = name_list([f"{kind} ({self.who(who)})" for kind, who in kinds.items()])
            return f"Speeds not comparable: measured on {why}"
        if len(work) > 1:
            ran = "ran" if all(comparable_runs.is_program(self.runs[index]) for index in timed) else "computed"
            first = list(work.items())[:_MAX_REASONS]
            told = (f"{self.who(who)} {ran} {shorten(what, _MAX_COMMAND_CHARS)}" for what, who in first)
            return f"Not comparable: {', '.join(told)}"
        if len(timed) == 1:
            rest = self.who([index for index in ended if index not in timed])
            return f"{_single_conclusion(self.runs[timed[0]], self.names[timed[0]])}; not compared: no speed of {rest}"
        return "Not comparable: simulated on different computers"

    def compared(self, group: Sequence[int]) -> str:
        """The winners in memory and speed among runs of the same work on the same kind of device."""
        less, fast = self.least_memory(group), self.fastest(group)
        several = len(group) > 2
        # A program may have been edited between two runs.
        work = "command" if comparable_runs.is_program(self.runs[group[0]]) else "work"
        if less is not None and fast is not None and set(less.winners) == set(fast.winners):
            same = less.reference == fast.reference
            return (
                f"{self.who(less.winners)}: {fast.best} instead of {fast.against} steps/s"
                f"{self.of(fast, several and not same)},"
                f" in {less.best} instead of {less.against}{self.of(less, several)}"
            )
        if less is not None:
            shown = (
                f"{self.who(less.winners)}: the same {work} in {less.best} instead of {less.against}"
                f"{self.of(less, several)}{self.speed_of(less)}"
            )
            # If the run measured against is the fastest, its speed has been named.
            if fast is not None and not set(fast.winners) & {*less.winners, less.reference}:
                shown += f"; fastest is {self.who(fast.winners)}: {fast.best} steps/s"
            return shown
        memory = self.same_memory(group)
        if fast is not None:
            return (
                f"{self.who(fast.winners)}: {fast.best} instead of {fast.against} steps/s"
                f"{self.of(fast, several)}{f', in the same memory ({memory})' if memory else ''}"
            )
        who = self.who(group)
        if any(self.runs[index].simulated for index in group):
            held = f"the same memory ({memory}); " if memory else ""
            return f"{who}: {held}no speeds to compare on simulated GPUs"
        held = f"the same memory ({memory}), " if memory else ""
        unsteady = any(is_unreliable(self.runs[index].throughput) for index in group)
        return f"{who} cannot be told apart: {held}{_VARY if unsteady else 'same speed within noise'}"

    def of(self, better: _Better, shown: bool) -> str:
        return f" ({self.who(better.alike)})" if shown else ""

    def least_memory(self, group: Sequence[int]) -> _Better | None:
        """The runs that held least, all within 1 %; None if no other held more."""
        held = {index: amount for index in group if (amount := _comparable_peak(self.runs[index])) is not None}
        if not held:
            return None
        least = min(held.values())
        winners = [index for index in held if held[index] <= least * (1 + SAME_MEMORY_SHARE)]
        others = [index for index in held if index not in winners]
        if not others:
            return None
        reference = self.reference(others, max(others, key=lambda index: held[index]))
        return self.better(held, size, winners, others, reference)

    def fastest(self, group: Sequence[int]) -> _Better | None:
        """The fastest runs, within noise of each other; None if no other is slower beyond noise."""
        speeds = {index: t.steps_per_second for index in group if (t := self.runs[index].throughput) is not None}
        steady = [index for index in speeds if not is_unreliable(self.runs[index].throughput)]
        if len(steady) < len(speeds) or not steady:
            return None  # an unsteady run may be faster than any other
        top = max(steady, key=lambda index: speeds[index])
        slower = [index for index in steady if not comparable_runs.why_speeds_equal(self.runs[top], self.runs[index])]
        if not slower:
            return None
        reference = self.reference(slower, min(slower, key=lambda index: speeds[index]))
        rest = [index for index in steady if index not in slower]
        winners = [i for i in rest if not comparable_runs.why_speeds_equal(self.runs[i], self.runs[reference])]
        return self.better(speeds, per_second_text, winners, slower, reference)

    def better(
        self,
        amounts: Mapping[int, float],
        text: Callable[[float], str],
        winners: Sequence[int],
        others: Sequence[int],
        reference: int,
    ) -> _Better:
        """``amounts`` of all runs that are compared; ``others``: those that are worse than the winners."""
        run, against = self.runs[reference], text(amounts[reference])
        best = list(dict.fromkeys(text(amounts[index]) for index in sorted(winners, key=lambda index: amounts[index])))
        alike = [reference]
        if run.node is not None:
            same = (index for index in others if text(amounts[index]) == against)
            alike = [index for index in same if self.runs[index].config == run.config]
        shown = best[0] if len(best) == 1 else f"{best[0]} to {best[-1]}"
        return _Better(tuple(winners), shown, reference, against, tuple(alike))

    def reference(self, worse: Sequence[int], worst: int) -> int:
        return next((index for index in worse if self.runs[index].config == "default"), worst)

    def speed_of(self, less: _Better) -> str:
        """How fast the runs that held least were; their speeds may be what the memory cost."""
        against = self.runs[less.reference]
        if against.simulated or any(self.runs[index].simulated for index in less.winners):
            return ""
        if is_unreliable(against.throughput) or any(
            is_unreliable(self.runs[index].throughput) for index in less.winners
        ):
            return f"; speeds cannot be told apart: {_VARY}"
        if all(comparable_runs.why_speeds_equal(self.runs[index], against) for index in less.winners):
            return ", at the same speed within noise"
        if len(less.winners) > 1:
            return "; their speeds differ"
        mine, other = self.runs[less.winners[0]].throughput, against.throughput
        if mine is None or other is None:
            return ""
        slower = mine.steps_per_second < other.steps_per_second
        return (
            f", {'but slower' if slower else 'and faster'}:"
            f" {per_second_text(mine.steps_per_second)} instead of {per_second_text(other.steps_per_second)} steps/s"
        )

    def same_memory(self, group: Sequence[int]) -> str:
        """What all held, if they held the same; empty if they did not, or it is unknown."""
        held = [amount for index in group if (amount := _comparable_peak(self.runs[index])) is not None]
        alike = len(held) == len(group) and max(held) <= min(held) * (1 + SAME_MEMORY_SHARE)
        return size(held[0]) if alike else ""


def _why_failed(run: Run) -> str:
    cause = CAUSES.get(run.primary or "", "") if run.primary not in ("healthy", "unknown") else ""
    if run.verdict == "oom":
        memory = "out of memory"
        rest = as_clause(cause).removeprefix(memory).lstrip(": ")
        return f"{memory}: {rest}" if rest else memory
    if cause:
        return as_clause(cause)
    if run.verdict == "timeout":
        return "stopped at the deadline"
    if run.errors:
        return clean(run.errors[0].type)
    reason = clean(run.verdict_reason).rstrip(".")
    return "cause unknown" if reason == UNKNOWN else as_clause(reason)


def _single_conclusion(run: Run, name: str) -> str:
    facts = []
    # Simulated GPUs compute on this computer's CPU.
    if run.throughput is not None and not run.simulated:
        facts.append(f"{speed_text(run.throughput)} steps/s{f' ({_VARY})' if is_unreliable(run.throughput) else ''}")
    if run.device_map and run.memory.nvml_peak_bytes:
        facts.append(f"{size(run.memory.nvml_peak_bytes)} of GPU memory")
    return f"{name}: {', '.join(facts)}" if facts else f"{name} completed"


def _comparable_peak(run: Run) -> int | None:
    """Its peak; None without a GPU, which would always win, and if a document has a number that cannot be."""
    peak = run.memory.nvml_peak_bytes or 0
    return peak if run.device_map and peak > 0 else None
