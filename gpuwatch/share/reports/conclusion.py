"""What a comparison shows, as one sentence with numbers: which run won in memory and speed, what failed and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuwatch.core.formatting.text import shorten
from gpuwatch.core.formatting.units import UNKNOWN, per_second, size
from gpuwatch.core.model.comparison import Comparison
from gpuwatch.core.model.findings import CAUSES
from gpuwatch.core.model.run import Run
from gpuwatch.experiment.trials.best_setting import listed, small
from gpuwatch.experiment.trials.speed_spread import speed, wide
from gpuwatch.experiment.trials.trial_summary import SAME_MEMORY
from gpuwatch.share.reports import comparable_runs
from gpuwatch.share.reports.content import clean
from gpuwatch.share.reports.run_content import as_shown
from gpuwatch.share.reports.runs_side_by_side import labels, named_once

_NAMES = 4
_REASONS = 2
_COMMAND = 60
"""Characters of a command that are shown."""
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


def failed(run: Run) -> bool:
    """Whether it failed; an out-of-memory that its configuration demonstrates is not a failure."""
    if run.verdict == "oom":
        return not as_shown(run)
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
    names = _names(runs)
    bad = [index for index, run in enumerate(runs) if failed(run)]
    failures = _failures(runs, names, bad)
    if len(bad) == len(runs) > 1:
        return f"All {len(runs)} runs failed: {_reasons(runs, names, bad)}"
    if len(bad) == len(runs):
        return failures
    shown = _completed(document, names)
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


# -- failures -------------------------------------------------------------------------------------


def _failures(runs: Sequence[Run], names: Sequence[str], bad: Sequence[int]) -> str:
    """Who failed, and why if all failed for one reason: a headline has no room for several, the table names each."""
    if not bad:
        return ""
    why = {_why(runs[index]) for index in bad}
    return f"{_who(runs, names, bad)} failed{f' ({why.pop()})' if len(why) == 1 else ''}"


def _reasons(runs: Sequence[Run], names: Sequence[str], bad: Sequence[int]) -> str:
    """``a and b (out of memory); c (stopped at the deadline)``."""
    reasons: dict[str, list[int]] = {}
    for index in bad:
        reasons.setdefault(_why(runs[index]), []).append(index)
    shown = [f"{_who(runs, names, who)} ({why})" for why, who in list(reasons.items())[:_REASONS]]
    rest = sum(len(who) for who in list(reasons.values())[_REASONS:])
    return "; ".join([*shown, *([f"{rest} more"] if rest else [])])


def _why(run: Run) -> str:
    cause = CAUSES.get(run.primary or "", "") if run.primary not in ("healthy", "unknown") else ""
    if run.verdict == "oom":
        memory = "out of memory"
        rest = small(cause).removeprefix(memory).lstrip(": ")
        return f"{memory}: {rest}" if rest else memory
    if cause:
        return small(cause)
    if run.verdict == "timeout":
        return "stopped at the deadline"
    if run.errors:
        return clean(run.errors[0].type)
    reason = clean(run.verdict_reason).rstrip(".")
    return "cause unknown" if reason == UNKNOWN else small(reason)


def _who(runs: Sequence[Run], names: Sequence[str], indices: Iterable[int]) -> str:
    return listed(named_once(runs, names, indices))


# -- runs that completed --------------------------------------------------------------------------


def _completed(document: Comparison, names: Sequence[str]) -> str:
    runs = document.runs
    group = document.comparable or comparable_runs.comparable(runs)
    if len(group) > 1:
        return _compared(runs, names, group)
    ended = [index for index, run in enumerate(runs) if run.verdict in ("ok", "fallback")]
    if len(ended) == 1:
        alone = "; nothing to compare it with" if len(runs) == 1 else ""
        return _alone(runs[ended[0]], names[ended[0]]) + alone
    if ended:
        return _not_comparable(runs, names, ended)
    rest: dict[str, list[int]] = {}
    for index, run in enumerate(runs):
        if not failed(run):
            rest.setdefault("oom" if as_shown(run) else run.verdict, []).append(index)
    ends = []
    for what, indices in rest.items():
        who = _who(runs, names, indices)
        ends.append(f"{who} {_ENDS[what].format(be='were' if ' and ' in who else 'was')}")
    return "; ".join(ends)


def _alone(run: Run, name: str) -> str:
    facts = []
    # Simulated GPUs compute on this computer's CPU.
    if run.throughput is not None and not run.simulated:
        facts.append(f"{speed(run.throughput)} steps/s{f' ({_VARY})' if wide(run.throughput) else ''}")
    if run.device_map and run.memory.nvml_peak_bytes:
        facts.append(f"{size(run.memory.nvml_peak_bytes)} of GPU memory")
    return f"{name}: {', '.join(facts)}" if facts else f"{name} completed"


def _not_comparable(runs: Sequence[Run], names: Sequence[str], ended: Sequence[int]) -> str:
    """Several runs completed, and no two of them can be compared."""
    timed = [index for index in ended if runs[index].throughput is not None]
    if not timed:
        held = [f"{names[index]} held {size(_held(runs[index]))}" for index in ended if _held(runs[index])]
        return "; ".join([*([", ".join(held[:_NAMES])] if held else []), "not compared, as no speed was measured"])
    kinds: dict[str, list[int]] = {}
    work: dict[str, list[int]] = {}
    for index in timed:
        kinds.setdefault(comparable_runs.kind(runs[index]), []).append(index)
        work.setdefault(comparable_runs.workload(runs[index]), []).append(index)
    if len(kinds) > 1:
        why = listed([f"{kind} ({_who(runs, names, who)})" for kind, who in kinds.items()])
        return f"Speeds not comparable: measured on {why}"
    if len(work) > 1:
        ran = "ran" if all(comparable_runs.is_program(runs[index]) for index in timed) else "computed"
        why = ", ".join(
            f"{_who(runs, names, who)} {ran} {shorten(what, _COMMAND)}" for what, who in list(work.items())[:_REASONS]
        )
        return f"Not comparable: {why}"
    if len(timed) == 1:
        rest = _who(runs, names, [index for index in ended if index not in timed])
        return f"{_alone(runs[timed[0]], names[timed[0]])}; not compared: no speed of {rest}"
    return "Not comparable: simulated on different computers"


def _held(run: Run) -> int | None:
    """Its peak; None without a GPU, which would always win, and if a document has a number that cannot be."""
    peak = run.memory.nvml_peak_bytes or 0
    return peak if run.device_map and peak > 0 else None


def _compared(runs: Sequence[Run], names: Sequence[str], group: Sequence[int]) -> str:
    """The winners in memory and speed among runs of the same work on the same kind of device."""
    less, fast = _least_memory(runs, group), _fastest(runs, group)
    several = len(group) > 2
    # A program may have been edited between two runs.
    work = "command" if comparable_runs.is_program(runs[group[0]]) else "work"
    if less is not None and fast is not None and set(less.winners) == set(fast.winners):
        same = less.reference == fast.reference
        return (
            f"{_who(runs, names, less.winners)}: {fast.best} instead of {fast.against} steps/s"
            f"{_of(runs, names, fast, several and not same)},"
            f" in {less.best} instead of {less.against}{_of(runs, names, less, several)}"
        )
    if less is not None:
        shown = (
            f"{_who(runs, names, less.winners)}: the same {work} in {less.best} instead of {less.against}"
            f"{_of(runs, names, less, several)}{_speed_of(runs, less)}"
        )
        # If the run measured against is the fastest, its speed has been named.
        if fast is not None and not set(fast.winners) & {*less.winners, less.reference}:
            shown += f"; fastest is {_who(runs, names, fast.winners)}: {fast.best} steps/s"
        return shown
    memory = _same_memory(runs, group)
    if fast is not None:
        return (
            f"{_who(runs, names, fast.winners)}: {fast.best} instead of {fast.against} steps/s"
            f"{_of(runs, names, fast, several)}{f', in the same memory ({memory})' if memory else ''}"
        )
    who = _who(runs, names, group)
    if any(runs[index].simulated for index in group):
        held = f"the same memory ({memory}); " if memory else ""
        return f"{who}: {held}no speeds to compare on simulated GPUs"
    held = f"the same memory ({memory}), " if memory else ""
    unsteady = any(wide(runs[index].throughput) for index in group)
    return f"{who} cannot be told apart: {held}{_VARY if unsteady else 'same speed within noise'}"


def _of(runs: Sequence[Run], names: Sequence[str], better: _Better, shown: bool) -> str:
    return f" ({_who(runs, names, better.alike)})" if shown else ""


def _least_memory(runs: Sequence[Run], group: Sequence[int]) -> _Better | None:
    """The runs that held least, all within 1 %; None if no other held more."""
    held = {index: amount for index in group if (amount := _held(runs[index])) is not None}
    if not held:
        return None
    least = min(held.values())
    winners = tuple(index for index in held if held[index] <= least * (1 + SAME_MEMORY))
    others = [index for index in held if index not in winners]
    if not others:
        return None
    reference = _reference(runs, others, max(others, key=lambda index: held[index]))
    best = dict.fromkeys(size(held[index]) for index in sorted(winners, key=lambda index: held[index]))
    against = size(held[reference])
    alike = _alike(runs, reference, [index for index in others if size(held[index]) == against])
    return _Better(winners, _range(list(best)), reference, against, alike)


def _fastest(runs: Sequence[Run], group: Sequence[int]) -> _Better | None:
    """The fastest runs, within noise of each other; None if no other is slower beyond noise."""
    speeds = {index: t.steps_per_second for index in group if (t := runs[index].throughput) is not None}
    steady = [index for index in speeds if not wide(runs[index].throughput)]
    if len(steady) < len(speeds) or not steady:
        return None  # an unsteady run may be faster than any other
    top = max(steady, key=lambda index: speeds[index])
    slower = [index for index in steady if not comparable_runs.alike(runs[top], runs[index])]
    if not slower:
        return None
    reference = _reference(runs, slower, min(slower, key=lambda index: speeds[index]))
    winners = [i for i in steady if i not in slower and not comparable_runs.alike(runs[i], runs[reference])]
    best = dict.fromkeys(per_second(speeds[index]) for index in sorted(winners, key=lambda index: speeds[index]))
    against = per_second(speeds[reference])
    alike = _alike(runs, reference, [index for index in slower if per_second(speeds[index]) == against])
    return _Better(tuple(winners), _range(list(best)), reference, against, alike)


def _alike(runs: Sequence[Run], reference: int, same: Sequence[int]) -> tuple[int, ...]:
    """The reference, with the runs of its configuration on other nodes that have the same number."""
    if runs[reference].node is None:
        return (reference,)
    return tuple(index for index in same if runs[index].config == runs[reference].config)


def _reference(runs: Sequence[Run], worse: Sequence[int], worst: int) -> int:
    return next((index for index in worse if runs[index].config == "default"), worst)


def _range(shown: Sequence[str]) -> str:
    return shown[0] if len(shown) == 1 else f"{shown[0]} to {shown[-1]}"


def _speed_of(runs: Sequence[Run], less: _Better) -> str:
    """How fast the runs that held least were; their speeds may be what the memory cost."""
    against = runs[less.reference]
    if against.simulated or any(runs[index].simulated for index in less.winners):
        return ""
    if wide(against.throughput) or any(wide(runs[index].throughput) for index in less.winners):
        return f"; speeds cannot be told apart: {_VARY}"
    if all(comparable_runs.alike(runs[index], against) for index in less.winners):
        return ", at the same speed within noise"
    if len(less.winners) > 1:
        return "; their speeds differ"
    mine, other = runs[less.winners[0]].throughput, against.throughput
    if mine is None or other is None:
        return ""
    slower = mine.steps_per_second < other.steps_per_second
    return (
        f", {'but slower' if slower else 'and faster'}:"
        f" {per_second(mine.steps_per_second)} instead of {per_second(other.steps_per_second)} steps/s"
    )


def _same_memory(runs: Sequence[Run], group: Sequence[int]) -> str:
    """What all held, if they held the same; empty if they did not, or it is unknown."""
    held = [amount for index in group if (amount := _held(runs[index])) is not None]
    alike = len(held) == len(group) and max(held) <= min(held) * (1 + SAME_MEMORY)
    return size(held[0]) if alike else ""
