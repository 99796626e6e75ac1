"""The answer of an experiment in one sentence, with the code that keeps the best setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gpuwatch.core.formatting.durations import measured_seconds
from gpuwatch.core.formatting.units import size
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.try_results import Answer, Trial
from gpuwatch.experiment.trials.speed_comparison import differs, speed_against
from gpuwatch.experiment.trials.step_times import step_time_text
from gpuwatch.experiment.trials.trial_summary import SAME_MEMORY_SHARE, Summary, recorded_profiles, summaries

_MAX_NAMES = 4
_TRIFLING_SHARE = 0.01
"""Share of the card by which recorded peaks of the same work may differ."""
_MAX_PEAK_RATIO = 1.02
"""Factor by which the program's own peak may exceed the recorded one."""


def answer(trials: Sequence[Trial], codes: Mapping[str, str]) -> Answer:
    """What the runs showed. ``codes``: what to paste to keep a setting, by its name as asked for.

    Settings are measured against the first that passed, which is ``default`` where that was tried. Memory is the peak
    by NVML of the steps that ran. Settings that change results are named only after one that does not.
    """
    over = [trial for trial in trials if trial.run is None or trial.run.verdict != "interrupted"]
    cut = next((trial.name for trial in trials if trial not in over), "")
    if not cut:
        return _answer_of_all(trials, codes)
    if not over:
        return Answer(sentence=f"Interrupted in the first run ({cut}): nothing is known yet")
    found = _answer_of_all(over, codes)
    return replace(found, sentence=f"{found.sentence}; interrupted in {cut}")


def _answer_of_all(trials: Sequence[Trial], codes: Mapping[str, str]) -> Answer:
    """The same, of trials that were not interrupted."""
    if any(trial.run is not None and trial.run.simulated for trial in trials):
        trials = [replace(trial, step_time=None) for trial in trials]  # these speeds are not compared
    known = summaries(trials)
    tried = [summary for summary in known if summary.tried]
    passed = [summary for summary in tried if summary.passed]
    failed = [summary for summary in tried if not summary.passed]
    if not tried:
        return Answer(sentence=_answer_without_runs(known))
    if not passed and all(run.verdict == "oom" for summary in failed if (run := summary.failed) is not None):
        verb = {1: "runs", 2: "both run"}.get(len(failed), "all run")
        runs = f"{listed([summary.name for summary in failed])} {verb} {_why(failed[0])}"
        return Answer(sentence=f"{runs}; gpuwatch try --recover looks for a setting with which it passes")
    if not passed:
        return Answer(sentence=f"{listed([summary.name for summary in failed])} failed: {_why(failed[0])}")
    base = passed[0]
    rescuer = _best(passed)
    if failed and known[0].name == failed[0].name:
        # What was asked for first, mostly the program as it is, fails: what passes is the answer.
        best = rescuer or base
        held = f" in {size(best.memory[1])}" if best.memory is not None else ""
        others = [summary.name for summary in passed if summary is not best]
        more = f" ({listed(others)} too)" if others else ""
        sentence = f"{best.name} runs{held}{more}, where {failed[0].name} fails: {_why(failed[0])}"
        return _answer_with_code(sentence + _failures(failed[1:]), best, codes)
    tail = _failures(failed) + _settings_overridden(known)
    if len({tuple(summary.trials[0].values.items()) for summary in passed}) > 1:
        return Answer(sentence=_each_value(passed) + _held_tensors(trials, passed, None) + tail)
    tail = _faster_otherwise(passed) + _held_tensors(trials, passed, rescuer) + tail + _ran_once(passed)
    if len(passed) == 1:
        return _answer_with_code(f"{_only_result(base)}{tail or '; nothing to compare it with'}", None, codes)
    if rescuer is None or rescuer is base:
        return Answer(sentence=_no_winner(passed, rescuer) + tail)
    return _answer_with_code(_better(rescuer, base) + tail, rescuer, codes)


def _answer_with_code(sentence: str, best: Summary | None, codes: Mapping[str, str]) -> Answer:
    if best is None:
        return Answer(sentence=sentence)
    code = codes.get(best.trials[0].asked, "")
    return Answer(sentence=sentence, best=best.name, code=tuple(code.rstrip().splitlines()))


def _answer_without_runs(known: Sequence[Summary]) -> str:
    if not known:
        return "Nothing was run"
    overridden = [summary for summary in known if summary.overridden]
    if len(overridden) == len(known):
        return f"Overridden ({overridden[0].overridden}): the program sets this itself, so there is nothing to compare"
    return f"Nothing could be tried: {next(summary.not_tried or summary.overridden for summary in known)}"


def _faster_otherwise(passed: Sequence[Summary]) -> str:
    """Settings that are faster than the first, but change results."""
    base = passed[0].step_time
    found = []
    for summary in passed[1:]:
        speed = speed_against(summary.step_time, base) if summary.changes_results else ""
        if "fast" in speed and base is not None and summary.step_time is not None and differs(summary.step_time, base):
            found.append(f"; {summary.name}: {speed}, but changes results")
    return "".join(found)


def _ran_once(passed: Sequence[Summary]) -> str:
    """What a difference in speed is worth where each setting has one run: steps of one run are alike, runs differ."""
    once = [summary.step_time for summary in passed if len(summary.trials) == 1 and summary.step_time is not None]
    if len(once) < len(passed) or not any(differs(time, once[0]) for time in once[1:]):
        return ""
    return "; each ran once: --rounds 3 shows whether that holds"


def _settings_overridden(known: Sequence[Summary]) -> str:
    overridden = group_by((summary for summary in known if summary.overridden), lambda summary: summary.overridden)
    return "".join(
        f"; {listed([summary.name for summary in of])} not applied: the program sets its own ({place})"
        for place, of in overridden.items()
    )


def _failures(failed: Sequence[Summary]) -> str:
    return "".join(
        f"; {listed([summary.name for summary in of])} failed ({why})" for why, of in group_by(failed, _why).items()
    )


def _best(passed: Sequence[Summary]) -> Summary | None:
    """Least memory, else fastest, of those that do not change results; None if none is better than another."""
    plain = [summary for summary in passed if not summary.changes_results] or list(passed)
    peaks = [(memory, summary) for summary in plain if (memory := summary.memory) is not None]
    if peaks:
        least, most = (choose(peak for peak, _ in peaks) for choose in (min, max))
        if least[1] < most[0] * (1 - SAME_MEMORY_SHARE):
            # Of those that hold as little, the one that was asked for first.
            return next(summary for peak, summary in peaks if peak[1] <= least[1] * (1 + SAME_MEMORY_SHARE))
    base = passed[0].step_time
    timed = [(time, summary) for summary in plain if (time := summary.step_time) is not None]
    if base is None or len(timed) < 2:
        return None
    time, fastest = min(timed, key=lambda pair: pair[0].median_seconds)
    return fastest if differs(time, base) else None


def _better(best: Summary, base: Summary) -> str:
    work = speed_against(best.step_time, base.step_time) or _work_done(best, base)
    mine, other = best.memory, base.memory
    if mine is None or other is None:
        return f"{best.name}: {work}"
    if mine[1] < other[0] * (1 - SAME_MEMORY_SHARE):
        where = f" ({base.name})" if base.name != "default" else ""
        return f"{best.name}: {work} in {size(mine[1])} instead of {size(other[1])}{where}"
    if mine[0] > other[1] * (1 + SAME_MEMORY_SHARE):
        return f"{best.name}: {work}, but {size(mine[1])} instead of {size(other[1])}"
    return f"{best.name}: {work}, in the same memory ({size(mine[1])})"


def _each_value(passed: Sequence[Summary]) -> str:
    """What each value took: with another value, such as a batch size, a step does other work."""
    told = []
    amounts = [summary.memory[1] for summary in passed if summary.memory is not None]
    same = len(amounts) == len(passed) and max(amounts) <= min(amounts) * (1 + SAME_MEMORY_SHARE)
    for summary in passed[:_MAX_NAMES]:
        facts = []
        peak = summary.allocator_peak
        if summary.memory is not None:
            # TensorFlow takes all memory at its start: what the values need shows in its allocator alone.
            held = size(summary.memory[1])
            facts.append(f"{size(peak)} in use of the {held} that it holds" if same and peak is not None else held)
        if summary.step_time is not None:
            facts.append(f"{step_time_text(summary.step_time.median_seconds)} per step")
        if not summary.simulated and all(trial.ended_by == "the program" for trial in summary.trials if trial.run):
            facts += _run_time(summary)
        told.append(f"{summary.name}: {', '.join(facts) or 'it ran'}")
    rest = len(passed) - _MAX_NAMES
    if rest > 0:
        told.append(f"and {rest} more")
    if any(summary.step_time is not None for summary in passed):
        told.append("with a different value, a step may do different work")
    return "; ".join(told)


def _run_time(summary: Summary) -> list[str]:
    """``1.02 to 1.04 s from start to end``: start-up is part of it."""
    times = [seconds for run in summary.runs if (seconds := run.phases.total_seconds) is not None]
    if not times:
        return []
    shown = dict.fromkeys(map(measured_seconds, (min(times), max(times))))
    return [f"{' to '.join(shown)} from start to end"]


def _work_done(summary: Summary, other: Summary) -> str:
    same = summary.same_work and other.same_work
    return "the same work" if same else "a run of the same length (no step could be counted)"


def _no_winner(passed: Sequence[Summary], best: Summary | None) -> str:
    # What changes results is faster or slower for a price: it has a sentence of its own.
    passed = [passed[0], *(summary for summary in passed[1:] if not summary.changes_results)]
    if len(passed) == 1:
        return _only_result(passed[0])
    names = listed([summary.name for summary in passed])
    base = passed[0]
    if best is base:
        worst = max(passed[1:], key=lambda summary: summary.memory[1] if summary.memory else 0)
        assert base.memory is not None
        assert worst.memory is not None
        work = speed_against(base.step_time, worst.step_time) or _work_done(base, worst)
        return f"{base.name} holds the least: {work} in {size(base.memory[1])}, {worst.name} in {size(worst.memory[1])}"
    amounts = [summary.memory for summary in passed if summary.memory is not None]
    same = len(amounts) == len(passed) and max(a[1] for a in amounts) <= min(a[0] for a in amounts) * (
        1 + SAME_MEMORY_SHARE
    )
    held = f"the same memory ({size(amounts[0][1])})" if same else ""
    if base.simulated:
        return f"{names}: {held or 'no memory to compare'}; no speeds to compare on simulated GPUs"
    timed = [summary.step_time for summary in passed if summary.step_time is not None]
    if len(timed) == len(passed) and any(differs(time, timed[0]) for time in timed[1:]):
        # The first is the fastest: another would be the answer.
        slower = [
            f"{summary.name} is {speed_against(summary.step_time, timed[0])}"
            for summary in passed[1:]
            if summary.step_time is not None and differs(summary.step_time, timed[0])
        ]
        return f"{base.name} is best: {', '.join(slower[:_MAX_NAMES])}{f', with {held}' if held else ''}"
    speeds = {speed_against(summary.step_time, base.step_time) for summary in passed[1:]}
    speed = speeds.pop() if len(speeds) == 1 else "speeds cannot be told apart"
    found = ", ".join(dict.fromkeys(filter(None, (held, speed)))) or "nothing was measured"
    return f"No difference between {names}: {found}"


def _held_tensors(trials: Sequence[Trial], passed: Sequence[Summary], best: Summary | None) -> str:
    """What became of the tensors, where that was recorded: ``; activations take 8.0 MiB instead of 16.0 MiB``.

    Compared are the answer, or else the setting with the highest peak, and the first. The same work takes a little more
    or less each time: of it, only what matters on this card is told.
    """
    profiles = recorded_profiles(trials)
    known = [summary for summary in passed if summary.name in profiles]
    if len(known) < 2 or known[0] is not passed[0]:
        return ""
    first, others = known[0], known[1:]
    other = best if best in others else max(others, key=lambda summary: profiles[summary.name].peak_bytes)
    base, item = profiles[first.name], profiles[other.name]
    more = item.peak_bytes - base.peak_bytes
    same_program = first.trials[0].values == other.trials[0].values
    card = max((run.memory.device_total_bytes or 0 for run in first.runs), default=0)
    if abs(more) <= SAME_MEMORY_SHARE * base.peak_bytes or (same_program and abs(more) <= _TRIFLING_SHARE * card):
        return f"; its tensors take {size(max(item.peak_bytes, base.peak_bytes))} at most" if best is not None else ""
    if any((profile.program_peak_bytes or 0) > _MAX_PEAK_RATIO * profile.peak_bytes for profile in (base, item)):
        return ""  # the peak of one was not recorded
    changes = {
        group: (item.groups.get(group, 0) - base.groups.get(group, 0)) / more
        for group in {*item.groups, *base.groups}
        if group != "unattributed"
    }
    group = max(changes, key=lambda name: changes[name], default="")
    if changes.get(group, 0) < 0.5:  # no group makes up most of the difference
        return (
            f"; {other.name}: the tensors take {size(item.peak_bytes)} at their peak instead of {size(base.peak_bytes)}"
        )
    amounts = f"{size(item.groups.get(group, 0))} instead of {size(base.groups.get(group, 0))}"
    return f"; {other.name}: {group} take {amounts} at the peak of {size(item.peak_bytes)}"


def _only_result(summary: Summary) -> str:
    facts = [f"{size(summary.memory[1])} of GPU memory"] if summary.memory is not None else []
    if summary.step_time is not None:
        facts.append(f"{step_time_text(summary.step_time.median_seconds)} per step")
    return f"{summary.name}: {', '.join(facts) or 'it ran'}"


def _why(summary: Summary) -> str:
    run = summary.failed
    return "" if run is None else why_failed(run)


def why_failed(run: Run) -> str:
    """``out of memory: another process holds the GPU``, ``ValueError: …``: why a run did not pass."""
    cause = CAUSES.get(run.primary, "") if run.primary not in ("healthy", "unknown", "program.error", None) else ""
    if run.verdict == "oom":
        rest = decapitalized(cause).removeprefix("out of memory").lstrip(": ")
        return f"out of memory: {rest}" if rest else "out of memory"
    return decapitalized(cause or run.verdict_reason.rstrip(".")) or run.verdict


def decapitalized(sentence: str) -> str:
    """As part of a sentence: without a capital at its start, except in names."""
    return sentence if not sentence[1:2].islower() and sentence[1:2] != " " else sentence[:1].lower() + sentence[1:]


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b, c, d and 3 more``."""
    known, rest = list(names[:_MAX_NAMES]), len(names) - _MAX_NAMES
    if rest > 0:
        return f"{', '.join(known)} and {rest} more"
    return " and ".join(filter(None, (", ".join(known[:-1]), known[-1])))
