"""Compares the settings that were run: the answer in one sentence, with the code that keeps the best one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gpuwatch.core.formatting.durations import measured_seconds
from gpuwatch.core.formatting.sentences import name_list
from gpuwatch.core.formatting.units import size
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.try_results import Answer, Trial
from gpuwatch.experiment.probing.step_times import is_clearly_different, speed_difference_text, step_time_text
from gpuwatch.experiment.trials.trial_results import (
    SAME_MEMORY_SHARE,
    SettingSummary,
    recorded_profiles,
    summarize_settings,
    why_failed,
)

_MAX_NAMES = 4
_TRIFLING_SHARE = 0.01
"""Share of the card by which recorded peaks of the same work may differ."""
_MAX_PEAK_RATIO = 1.02
"""Factor by which the program's own peak may exceed the recorded one."""


def compare_settings(trials: Sequence[Trial], code_by_setting: Mapping[str, str]) -> Answer:
    """What the runs showed. ``code_by_setting``: what to paste to keep a setting, by its name as asked for.

    Settings are measured against the first that passed, which is ``default`` where that was tried. Memory is the peak
    by NVML of the steps that ran. Settings that change results are named only after one that does not.
    """
    finished = [trial for trial in trials if trial.run is None or trial.run.verdict != "interrupted"]
    interrupted_name = next((trial.name for trial in trials if trial not in finished), "")
    if not interrupted_name:
        return _compare_finished(trials, code_by_setting)
    if not finished:
        return Answer(sentence=f"Interrupted in the first run ({interrupted_name}): nothing is known yet")
    comparison = _compare_finished(finished, code_by_setting)
    return replace(comparison, sentence=f"{comparison.sentence}; interrupted in {interrupted_name}")


def _compare_finished(trials: Sequence[Trial], code_by_setting: Mapping[str, str]) -> Answer:
    """The same, of trials that were not interrupted."""
    if any(trial.run is not None and trial.run.simulated for trial in trials):
        trials = [replace(trial, step_time=None) for trial in trials]  # these speeds are not compared
    all_summaries = summarize_settings(trials)
    tried = [summary for summary in all_summaries if summary.was_tried]
    passed = [summary for summary in tried if summary.has_passed]
    failed = [summary for summary in tried if not summary.has_passed]
    if not tried:
        return Answer(sentence=_sentence_without_runs(all_summaries))
    if not passed and all(run.verdict == "oom" for summary in failed if (run := summary.first_failed_run) is not None):
        verb = {1: "runs", 2: "both run"}.get(len(failed), "all run")
        runs = f"{_names_text(failed)} {verb} {_failure_reason(failed[0])}"
        return Answer(sentence=f"{runs}; gpuwatch try --recover looks for a setting with which it passes")
    if not passed:
        return Answer(sentence=f"{_names_text(failed)} failed: {_failure_reason(failed[0])}")
    baseline = passed[0]
    winner = _find_winner(passed)
    if failed and all_summaries[0].name == failed[0].name:
        # What was asked for first, mostly the program as it is, fails: what passes is the answer.
        best = winner or baseline
        memory_text = f" in {size(best.memory[1])}" if best.memory is not None else ""
        others = [summary.name for summary in passed if summary is not best]
        others_text = f" ({name_list(others)} too)" if others else ""
        sentence = (
            f"{best.name} runs{memory_text}{others_text}, where {failed[0].name} fails: {_failure_reason(failed[0])}"
        )
        return _answer_with_code(sentence + _failure_clauses(failed[1:]), best, code_by_setting)
    clauses = _failure_clauses(failed) + _overridden_clauses(all_summaries)
    if len({tuple(summary.trials[0].values.items()) for summary in passed}) > 1:
        return Answer(sentence=_values_sentence(passed) + _tensor_memory_clause(trials, passed, None) + clauses)
    clauses = (
        _faster_clauses(passed) + _tensor_memory_clause(trials, passed, winner) + clauses + _single_run_clause(passed)
    )
    if len(passed) == 1:
        return Answer(sentence=f"{_single_result(baseline)}{clauses or '; nothing to compare it with'}")
    if winner is None or winner is baseline:
        return Answer(sentence=_no_winner_sentence(passed, winner) + clauses)
    return _answer_with_code(_winner_sentence(winner, baseline) + clauses, winner, code_by_setting)


def _answer_with_code(sentence: str, best: SettingSummary, code_by_setting: Mapping[str, str]) -> Answer:
    code = code_by_setting.get(best.trials[0].asked, "")
    return Answer(sentence=sentence, best=best.name, code=tuple(code.rstrip().splitlines()))


def _names_text(summaries_named: Sequence[SettingSummary]) -> str:
    return name_list([summary.name for summary in summaries_named])


def _sentence_without_runs(all_summaries: Sequence[SettingSummary]) -> str:
    if not all_summaries:
        return "Nothing was run"
    overridden = [summary for summary in all_summaries if summary.overridden]
    if len(overridden) == len(all_summaries):
        return f"Overridden ({overridden[0].overridden}): the program sets this itself, so there is nothing to compare"
    return f"Nothing could be tried: {next(summary.not_tried or summary.overridden for summary in all_summaries)}"


def _faster_clauses(passed: Sequence[SettingSummary]) -> str:
    """Settings that are faster than the first, but change results."""
    baseline_time = passed[0].step_time
    clauses = []
    for summary in passed[1:]:
        speed = speed_difference_text(summary.step_time, baseline_time) if summary.changes_results else ""
        if (
            "fast" in speed
            and baseline_time is not None
            and summary.step_time is not None
            and is_clearly_different(summary.step_time, baseline_time)
        ):
            clauses.append(f"; {summary.name}: {speed}, but changes results")
    return "".join(clauses)


def _single_run_clause(passed: Sequence[SettingSummary]) -> str:
    """What a difference in speed is worth where each setting has one run: steps of one run are alike, runs differ."""
    once = [summary.step_time for summary in passed if len(summary.trials) == 1 and summary.step_time is not None]
    if len(once) < len(passed) or not any(is_clearly_different(time, once[0]) for time in once[1:]):
        return ""
    return "; each ran once: --rounds 3 shows whether that holds"


def _overridden_clauses(summaries: Sequence[SettingSummary]) -> str:
    overridden = group_by((each for each in summaries if each.overridden), lambda summary: summary.overridden)
    return "".join(
        f"; {_names_text(group)} not applied: the program sets its own ({place})" for place, group in overridden.items()
    )


def _failure_clauses(failed: Sequence[SettingSummary]) -> str:
    return "".join(f"; {_names_text(group)} failed ({why})" for why, group in group_by(failed, _failure_reason).items())


def _find_winner(passed: Sequence[SettingSummary]) -> SettingSummary | None:
    """Least memory, else fastest, of those that do not change results; None if none is better than another."""
    candidates = [summary for summary in passed if not summary.changes_results] or list(passed)
    peaks = [(memory, summary) for summary in candidates if (memory := summary.memory) is not None]
    if peaks:
        least, most = (choose(peak for peak, _ in peaks) for choose in (min, max))
        if least[1] < most[0] * (1 - SAME_MEMORY_SHARE):
            # Of those that hold as little, the one that was asked for first.
            return next(summary for peak, summary in peaks if peak[1] <= least[1] * (1 + SAME_MEMORY_SHARE))
    baseline_time = passed[0].step_time
    timed = [(time, summary) for summary in candidates if (time := summary.step_time) is not None]
    if baseline_time is None or len(timed) < 2:
        return None
    time, fastest = min(timed, key=lambda pair: pair[0].median_seconds)
    return fastest if is_clearly_different(time, baseline_time) else None


def _winner_sentence(best: SettingSummary, baseline: SettingSummary) -> str:
    work = speed_difference_text(best.step_time, baseline.step_time) or _same_work_text(best, baseline)
    best_memory, baseline_memory = best.memory, baseline.memory
    if best_memory is None or baseline_memory is None:
        return f"{best.name}: {work}"
    if best_memory[1] < baseline_memory[0] * (1 - SAME_MEMORY_SHARE):
        where = f" ({baseline.name})" if baseline.name != "default" else ""
        return f"{best.name}: {work} in {size(best_memory[1])} instead of {size(baseline_memory[1])}{where}"
    if best_memory[0] > baseline_memory[1] * (1 + SAME_MEMORY_SHARE):
        return f"{best.name}: {work}, but {size(best_memory[1])} instead of {size(baseline_memory[1])}"
    return f"{best.name}: {work}, in the same memory ({size(best_memory[1])})"


def _values_sentence(passed: Sequence[SettingSummary]) -> str:
    """What each value took: with another value, such as a batch size, a step does other work."""
    parts = []
    peaks = [summary.memory[1] for summary in passed if summary.memory is not None]
    same_memory = len(peaks) == len(passed) and max(peaks) <= min(peaks) * (1 + SAME_MEMORY_SHARE)
    for summary in passed[:_MAX_NAMES]:
        facts = []
        peak = summary.allocator_peak
        if summary.memory is not None:
            # TensorFlow takes all memory at its start: what the values need shows in its allocator alone.
            shown_memory = size(summary.memory[1])
            facts.append(
                f"{size(peak)} in use of the {shown_memory} that it holds"
                if same_memory and peak is not None
                else shown_memory
            )
        if summary.step_time is not None:
            facts.append(f"{step_time_text(summary.step_time.median_seconds)} per step")
        if not summary.simulated and all(trial.ended_by == "the program" for trial in summary.trials if trial.run):
            facts += _run_time_range(summary)
        parts.append(f"{summary.name}: {', '.join(facts) or 'it ran'}")
    omitted = len(passed) - _MAX_NAMES
    if omitted > 0:
        parts.append(f"and {omitted} more")
    if any(summary.step_time is not None for summary in passed):
        parts.append("with a different value, a step may do different work")
    return "; ".join(parts)


def _run_time_range(summary: SettingSummary) -> list[str]:
    """``1.02 to 1.04 s from start to end``: start-up is part of it."""
    times = [seconds for run in summary.runs if (seconds := run.phases.total_seconds) is not None]
    if not times:
        return []
    shown = dict.fromkeys(map(measured_seconds, (min(times), max(times))))
    return [f"{' to '.join(shown)} from start to end"]


def _same_work_text(summary: SettingSummary, other: SettingSummary) -> str:
    same_work = summary.same_work and other.same_work
    return "the same work" if same_work else "a run of the same length (no step could be counted)"


def _no_winner_sentence(passed: Sequence[SettingSummary], best: SettingSummary | None) -> str:
    # What changes results is faster or slower for a price: it has a sentence of its own.
    passed = [passed[0], *(summary for summary in passed[1:] if not summary.changes_results)]
    if len(passed) == 1:
        return _single_result(passed[0])
    names = _names_text(passed)
    baseline = passed[0]
    if best is baseline:
        worst = max(passed[1:], key=lambda summary: summary.memory[1] if summary.memory else 0)
        assert baseline.memory is not None
        assert worst.memory is not None
        work = speed_difference_text(baseline.step_time, worst.step_time) or _same_work_text(baseline, worst)
        least, most = size(baseline.memory[1]), size(worst.memory[1])
        return f"{baseline.name} holds the least: {work} in {least}, {worst.name} in {most}"
    memories = [summary.memory for summary in passed if summary.memory is not None]
    same_memory = len(memories) == len(passed) and max(ends[1] for ends in memories) <= min(
        ends[0] for ends in memories
    ) * (1 + SAME_MEMORY_SHARE)
    memory_text = f"the same memory ({size(memories[0][1])})" if same_memory else ""
    if baseline.simulated:
        return f"{names}: {memory_text or 'no memory to compare'}; no speeds to compare on simulated GPUs"
    timed = [summary.step_time for summary in passed if summary.step_time is not None]
    if len(timed) == len(passed) and any(is_clearly_different(time, timed[0]) for time in timed[1:]):
        # The first is the fastest: another would be the answer.
        slower = [
            f"{summary.name} is {speed_difference_text(summary.step_time, timed[0])}"
            for summary in passed[1:]
            if summary.step_time is not None and is_clearly_different(summary.step_time, timed[0])
        ]
        return (
            f"{baseline.name} is best: {', '.join(slower[:_MAX_NAMES])}{f', with {memory_text}' if memory_text else ''}"
        )
    speeds = {speed_difference_text(summary.step_time, baseline.step_time) for summary in passed[1:]}
    speed = speeds.pop() if len(speeds) == 1 else "speeds cannot be told apart"
    facts = ", ".join(dict.fromkeys(filter(None, (memory_text, speed)))) or "nothing was measured"
    return f"No difference between {names}: {facts}"


def _tensor_memory_clause(
    trials: Sequence[Trial], passed: Sequence[SettingSummary], best: SettingSummary | None
) -> str:
    """What became of the tensors, where that was recorded: ``; activations take 8.0 MiB instead of 16.0 MiB``.

    Compared are the answer, or else the setting with the highest peak, and the first. The same work takes a little more
    or less each time: of it, only what matters on this card is told.
    """
    profiles = recorded_profiles(trials)
    profiled = [summary for summary in passed if summary.name in profiles]
    if len(profiled) < 2 or profiled[0] is not passed[0]:
        return ""
    first, others = profiled[0], profiled[1:]
    other = best if best in others else max(others, key=lambda summary: profiles[summary.name].peak_bytes)
    first_profile, other_profile = profiles[first.name], profiles[other.name]
    difference = other_profile.peak_bytes - first_profile.peak_bytes
    same_program = first.trials[0].values == other.trials[0].values
    card = max((run.memory.device_total_bytes or 0 for run in first.runs), default=0)
    if abs(difference) <= SAME_MEMORY_SHARE * first_profile.peak_bytes or (
        same_program and abs(difference) <= _TRIFLING_SHARE * card
    ):
        return (
            f"; its tensors take {size(max(other_profile.peak_bytes, first_profile.peak_bytes))} at most"
            if best is not None
            else ""
        )
    if any(
        (profile.program_peak_bytes or 0) > _MAX_PEAK_RATIO * profile.peak_bytes
        for profile in (first_profile, other_profile)
    ):
        return ""  # the peak of one was not recorded
    shares = {
        group: (other_profile.groups.get(group, 0) - first_profile.groups.get(group, 0)) / difference
        for group in {*other_profile.groups, *first_profile.groups}
        if group != "unattributed"
    }
    group = max(shares, key=lambda name: shares[name], default="")
    if shares.get(group, 0) < 0.5:  # no group makes up most of the difference
        peaks = f"{size(other_profile.peak_bytes)} at their peak instead of {size(first_profile.peak_bytes)}"
        return f"; {other.name}: the tensors take {peaks}"
    amounts = f"{size(other_profile.groups.get(group, 0))} instead of {size(first_profile.groups.get(group, 0))}"
    return f"; {other.name}: {group} take {amounts} at the peak of {size(other_profile.peak_bytes)}"


def _single_result(summary: SettingSummary) -> str:
    facts = [f"{size(summary.memory[1])} of GPU memory"] if summary.memory is not None else []
    if summary.step_time is not None:
        facts.append(f"{step_time_text(summary.step_time.median_seconds)} per step")
    return f"{summary.name}: {', '.join(facts) or 'it ran'}"


def _failure_reason(summary: SettingSummary) -> str:
    run = summary.first_failed_run
    return "" if run is None else why_failed(run)
