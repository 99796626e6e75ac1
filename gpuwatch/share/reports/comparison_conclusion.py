"""What a comparison shows, as one sentence with numbers: which run won in memory and speed, what failed and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuwatch.core.formatting.sentences import as_clause, name_list
from gpuwatch.core.formatting.units import UNKNOWN, count_rate, size
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.comparison import Comparison
from gpuwatch.core.model.run import Run
from gpuwatch.core.safe_text import shorten
from gpuwatch.experiment.probing.step_times import UNRELIABLE_REASON, is_unreliable, speed_text
from gpuwatch.experiment.trials.trial_results import SAME_MEMORY_SHARE
from gpuwatch.share.reports import comparable_runs
from gpuwatch.share.reports.report_text import clean
from gpuwatch.share.reports.run_report import ended_as_expected
from gpuwatch.share.reports.runs_side_by_side import names_by_config, run_labels

_MAX_NAMES = 4
_MAX_REASONS = 2
_MAX_COMMAND_CHARS = 60
_END_TEXTS = {"oom": "ran out of memory, as expected", "skipped": "{be} skipped", "interrupted": "{be} interrupted"}


@dataclass(frozen=True, slots=True)
class _Winners:
    """The best of the comparable runs in one respect, and the run that they are measured against."""

    winners: tuple[int, ...]
    best_amount: str
    reference: int
    reference_amount: str
    reference_runs: tuple[int, ...]
    """The runs of the same configuration as the reference with the same number."""

    @property
    def amounts_text(self) -> str:
        return f"{self.best_amount} instead of {self.reference_amount}"


def run_failed(run: Run) -> bool:
    """Whether it failed; an out-of-memory that its configuration demonstrates is not a failure."""
    if run.verdict == "oom":
        return not ended_as_expected(run)
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
    failed = [index for index, run in enumerate(runs) if run_failed(run)]
    sentences = _Sentences(runs, _names(runs))
    failures = sentences.failures_text(failed)
    if len(failed) == len(runs) > 1:
        return f"All {len(runs)} runs failed: {sentences.failure_reasons(failed)}"
    if len(failed) == len(runs):
        return failures
    text = sentences.completed_text(document.comparable)
    return f"{text}; {failures}" if failures else text


def _names(runs: Sequence[Run]) -> tuple[str, ...]:
    """The labels; runs of one configuration are named by version or machine if that is enough."""
    names = list(run_labels(runs))
    for index, run in enumerate(runs):
        same_config = [other for other in runs if other.config == run.config]
        facts = tuple(
            fact for fact in comparable_runs.DISTINGUISHING_FACTS if len({fact(other) for other in same_config}) > 1
        )
        if facts and len({tuple(fact(other) for fact in facts) for other in same_config}) == len(same_config):
            names[index] = f"{clean(run.config)} ({', '.join(fact(run) for fact in facts)})"
    return tuple(names)


@dataclass(frozen=True, slots=True)
class _Sentences:
    """Sentences about some runs, which it names; runs are given by their index."""

    runs: Sequence[Run]
    names: Sequence[str]

    def failures_text(self, failed: Sequence[int]) -> str:
        """Who failed, and why if all failed for one reason: a headline has no room for several."""
        if not failed:
            return ""
        reasons_set = {_why_failed(self.runs[index]) for index in failed}
        return f"{self.names_of(failed)} failed{f' ({reasons_set.pop()})' if len(reasons_set) == 1 else ''}"

    def failure_reasons(self, failed: Sequence[int]) -> str:
        """``a and b (out of memory); c (stopped at the deadline)``."""
        reasons = group_by(failed, lambda index: _why_failed(self.runs[index]))
        texts = [f"{self.names_of(indices)} ({why})" for why, indices in list(reasons.items())[:_MAX_REASONS]]
        remaining = sum(len(indices) for indices in list(reasons.values())[_MAX_REASONS:])
        return "; ".join([*texts, *([f"{remaining} more"] if remaining else [])])

    def names_of(self, indices: Iterable[int]) -> str:
        return name_list(names_by_config(self.runs, self.names, indices))

    def completed_text(self, comparable: tuple[int, ...]) -> str:
        group = comparable or comparable_runs.comparable_indices(self.runs)
        if len(group) > 1:
            return self.compared_text(group)
        ended = [index for index, run in enumerate(self.runs) if run.verdict in ("ok", "fallback")]
        if len(ended) == 1:
            alone = "; nothing to compare it with" if len(self.runs) == 1 else ""
            return _single_conclusion(self.runs[ended[0]], self.names[ended[0]]) + alone
        if ended:
            return self.not_comparable_text(ended)
        others = [index for index, run in enumerate(self.runs) if not run_failed(run)]
        verdicts = ["oom" if ended_as_expected(run) else run.verdict for run in self.runs]
        remaining = group_by(others, lambda index: verdicts[index])
        ends = ((self.names_of(indices), _END_TEXTS[end]) for end, indices in remaining.items())
        return "; ".join(f"{names} {end.format(be='were' if ' and ' in names else 'was')}" for names, end in ends)

    def not_comparable_text(self, ended: Sequence[int]) -> str:
        """Several runs completed, and no two of them can be compared."""
        timed = [index for index in ended if self.runs[index].throughput is not None]
        if not timed:
            peaks = ((self.names[index], _comparable_peak(self.runs[index])) for index in ended)
            held = ", ".join([f"{name} held {size(peak)}" for name, peak in peaks if peak is not None][:_MAX_NAMES])
            return "; ".join(filter(None, (held, "not compared, as no speed was measured")))
        kinds = group_by(timed, lambda index: comparable_runs.device_kind(self.runs[index]))
        work = group_by(timed, lambda index: comparable_runs.workload(self.runs[index]))
        if len(kinds) > 1:
            why = name_list([f"{kind} ({self.names_of(indices)})" for kind, indices in kinds.items()])
            return f"Speeds not comparable: measured on {why}"
        if len(work) > 1:
            ran = "ran" if all(comparable_runs.is_user_program(self.runs[index]) for index in timed) else "computed"
            first = list(work.items())[:_MAX_REASONS]
            texts = (f"{self.names_of(indices)} {ran} {shorten(what, _MAX_COMMAND_CHARS)}" for what, indices in first)
            return f"Not comparable: {', '.join(texts)}"
        if len(timed) == 1:
            remaining = self.names_of([index for index in ended if index not in timed])
            conclusion_text = _single_conclusion(self.runs[timed[0]], self.names[timed[0]])
            return f"{conclusion_text}; not compared: no speed of {remaining}"
        return "Not comparable: simulated on different computers"

    def compared_text(self, group: Sequence[int]) -> str:
        """The winners in memory and speed among runs of the same work on the same kind of device."""
        smallest, fastest = self.least_memory(group), self.fastest(group)
        more_than_two = len(group) > 2
        # A program may have been edited between two runs.
        work = "command" if comparable_runs.is_user_program(self.runs[group[0]]) else "work"
        if smallest is not None and fastest is not None and set(smallest.winners) == set(fastest.winners):
            same = smallest.reference == fastest.reference
            return (
                f"{self.names_of(smallest.winners)}: {fastest.amounts_text} steps/s"
                f"{self.reference_suffix(fastest, more_than_two and not same)},"
                f" in {smallest.amounts_text}{self.reference_suffix(smallest, more_than_two)}"
            )
        if smallest is not None:
            text = (
                f"{self.names_of(smallest.winners)}: the same {work} in {smallest.amounts_text}"
                f"{self.reference_suffix(smallest, more_than_two)}{self.speed_text_of(smallest)}"
            )
            # If the run measured against is the fastest, its speed has been named.
            if fastest is not None and not set(fastest.winners) & {*smallest.winners, smallest.reference}:
                text += f"; fastest is {self.names_of(fastest.winners)}: {fastest.best_amount} steps/s"
            return text
        memory = self.same_memory_text(group)
        if fastest is not None:
            return (
                f"{self.names_of(fastest.winners)}: {fastest.amounts_text} steps/s"
                f"{self.reference_suffix(fastest, more_than_two)}{f', in the same memory ({memory})' if memory else ''}"
            )
        names_text = self.names_of(group)
        if any(self.runs[index].simulated for index in group):
            memory_text = f"the same memory ({memory}); " if memory else ""
            return f"{names_text}: {memory_text}no speeds to compare on simulated GPUs"
        memory_text = f"the same memory ({memory}), " if memory else ""
        unsteady = any(is_unreliable(self.runs[index].throughput) for index in group)
        speed = UNRELIABLE_REASON if unsteady else "same speed within noise"
        return f"{names_text} cannot be told apart: {memory_text}{speed}"

    def reference_suffix(self, better: _Winners, wanted: bool) -> str:
        return f" ({self.names_of(better.reference_runs)})" if wanted else ""

    def least_memory(self, group: Sequence[int]) -> _Winners | None:
        """The runs that held least, all within 1 %; None if no other held more."""
        peaks = {index: amount for index in group if (amount := _comparable_peak(self.runs[index])) is not None}
        if not peaks:
            return None
        least = min(peaks.values())
        winners = [index for index in peaks if peaks[index] <= least * (1 + SAME_MEMORY_SHARE)]
        others = [index for index in peaks if index not in winners]
        if not others:
            return None
        reference = self.reference(others, max(others, key=lambda index: peaks[index]))
        return self.winners_among(peaks, size, winners, others, reference)

    def fastest(self, group: Sequence[int]) -> _Winners | None:
        """The fastest runs, within noise of each other; None if no other is slower beyond noise."""
        measured = ((index, self.runs[index].throughput) for index in group)
        speeds = {index: speed.steps_per_second for index, speed in measured if speed is not None}
        steady = [index for index in speeds if not is_unreliable(self.runs[index].throughput)]
        if len(steady) < len(speeds) or not steady:
            return None  # an unsteady run may be faster than any other
        top = max(steady, key=lambda index: speeds[index])
        slower = [index for index in steady if not comparable_runs.why_speeds_alike(self.runs[top], self.runs[index])]
        if not slower:
            return None
        reference = self.reference(slower, min(slower, key=lambda index: speeds[index]))
        against = self.runs[reference]
        remaining = [index for index in steady if index not in slower]
        winners = [index for index in remaining if not comparable_runs.why_speeds_alike(self.runs[index], against)]
        return self.winners_among(speeds, count_rate, winners, slower, reference)

    def winners_among(
        self,
        amounts: Mapping[int, float],
        text: Callable[[float], str],
        winners: Sequence[int],
        others: Sequence[int],
        reference: int,
    ) -> _Winners:
        """``amounts`` of all runs that are compared; ``others``: those that are worse than the winners."""
        run, against = self.runs[reference], text(amounts[reference])
        best = list(dict.fromkeys(text(amounts[index]) for index in sorted(winners, key=lambda index: amounts[index])))
        same_config = [reference]
        if run.node is not None:
            same = (index for index in others if text(amounts[index]) == against)
            same_config = [index for index in same if self.runs[index].config == run.config]
        best_text = best[0] if len(best) == 1 else f"{best[0]} to {best[-1]}"
        return _Winners(tuple(winners), best_text, reference, against, tuple(same_config))

    def reference(self, worse: Sequence[int], worst: int) -> int:
        return next((index for index in worse if self.runs[index].config == "default"), worst)

    def speed_text_of(self, least_memory: _Winners) -> str:
        """How fast the runs that held least were; their speeds may be what the memory cost."""
        against, winners = self.runs[least_memory.reference], [self.runs[index] for index in least_memory.winners]
        if any(run.simulated for run in (against, *winners)):
            return ""
        if any(is_unreliable(run.throughput) for run in (against, *winners)):
            return f"; speeds cannot be told apart: {UNRELIABLE_REASON}"
        if all(comparable_runs.why_speeds_alike(run, against) for run in winners):
            return ", at the same speed within noise"
        if len(winners) > 1:
            return "; their speeds differ"
        own, other = winners[0].throughput, against.throughput
        if own is None or other is None:
            return ""
        slower = own.steps_per_second < other.steps_per_second
        return (
            f", {'but slower' if slower else 'and faster'}:"
            f" {count_rate(own.steps_per_second)} instead of {count_rate(other.steps_per_second)} steps/s"
        )

    def same_memory_text(self, group: Sequence[int]) -> str:
        """What all held, if they held the same; empty if they did not, or it is unknown."""
        peaks = [amount for index in group if (amount := _comparable_peak(self.runs[index])) is not None]
        are_equal = len(peaks) == len(group) and max(peaks) <= min(peaks) * (1 + SAME_MEMORY_SHARE)
        return size(peaks[0]) if are_equal else ""


def _why_failed(run: Run) -> str:
    cause = CAUSES.get(run.primary or "", "") if run.primary not in ("healthy", "unknown") else ""
    if run.verdict == "oom":
        memory = "out of memory"
        remaining = as_clause(cause).removeprefix(memory).lstrip(": ")
        return f"{memory}: {remaining}" if remaining else memory
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
        unsteady = f" ({UNRELIABLE_REASON})" if is_unreliable(run.throughput) else ""
        facts.append(f"{speed_text(run.throughput)} steps/s{unsteady}")
    if run.device_map and run.memory.nvml_peak_bytes:
        facts.append(f"{size(run.memory.nvml_peak_bytes)} of GPU memory")
    return f"{name}: {', '.join(facts)}" if facts else f"{name} completed"


def _comparable_peak(run: Run) -> int | None:
    """Its peak; None without a GPU, which would always win, and if a document has a number that cannot be."""
    peak = comparable_runs.work_peak(run) or 0
    return peak if run.device_map and peak > 0 else None
