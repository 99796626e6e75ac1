"""The content of an experiment: the answer, the settings compared, every run."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import UNKNOWN, count_rate, size
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.json_codec import runs_in
from gpuwatch.core.model.memory_profile import MemoryProfile
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.try_results import Experiment, StepTime, Trial
from gpuwatch.core.safe_text import printable
from gpuwatch.experiment.probing.step_times import MIN_TIMED_STEPS, relative_half_width, slowdown_factor, step_time_text
from gpuwatch.experiment.trials.trial_results import (
    PASSED_VERDICTS,
    SAME_MEMORY_SHARE,
    SettingSummary,
    recorded_profiles,
    summarize_settings,
)
from gpuwatch.explain.traces.largest_holder import holder_name
from gpuwatch.explain.traces.tensorflow_op_names import strip_calls
from gpuwatch.share.reports import bar_charts, run_report
from gpuwatch.share.reports.memory_profile_tables import MEMORY_GROUPS
from gpuwatch.share.reports.report_elements import (
    GLYPHS,
    BarChart,
    BarPart,
    BarRow,
    Content,
    PartKind,
    Table,
    charts_with_data,
    heads_and_rows,
)
from gpuwatch.share.reports.report_log_lines import USUAL_LINES
from gpuwatch.share.reports.report_text import clean, clean_or_empty, framework_text
from gpuwatch.share.reports.run_report import setting_text, simulated_note
from gpuwatch.share.reports.run_tables import device_map

_MIN_SHARE = 0.0005
"""Share of the largest peak below which a group has no column."""
_MAX_HOLDERS = 15
_MAX_SETTINGS = 6
"""Settings whose holders are shown side by side."""
_NOT_RECORDED = "not recorded"
_FREE_PART: tuple[PartKind, str] = ("free", "")
_MAX_DECISIVE_LINES = 3
_SPEEDS = ("STEP", "STEPS/S")
_UNIMPORTANT_LINE = re.compile(
    r"(?:\d{4}-\d\d-\d\d [\d:.]+: )?[IW](?:\d{4} [\d:.]+ +\d+)? [\w./-]+:\d+\]|\s*\[\[\{\{|Hint: "
    r"|.*Failed to get device properties, error code: 302"
)
"""Information and warnings of TensorFlow's log, names of nodes, hints, and what simulated GPUs lack."""
_PROGRAM_FRAME = re.compile(r'\s+File "(?!.*/(?:site|dist)-packages/)[^"<]+", line \d+')
"""A line of a traceback in a file of the program's own."""
_CHANGES_RESULTS_MARK = "‡"
_SIMULATED_SPEEDS_NOTE = "Simulated GPUs compute on this computer's CPU: their speeds are not compared."
_OR_ITS_END_TEXT = ", or at its own end if that comes first"


def trials_content(document: Experiment) -> Content:
    """The settings side by side, then every run."""
    summaries = summarize_settings(document.trials)
    state, verdict = _verdict(document, summaries)
    not_tried = ((clean(summary.name), clean(summary.not_tried)) for summary in summaries if summary.not_tried)
    tables = (
        _card_table(document),
        _recovery_table(document),
        _largest_value_table(document),
        _copy_table(document.trials),
        _setting_table(document, summaries),
        *_recorded_tables(document.trials),
        _failure_table([trial for trial in document.trials if _unexpected(document, trial)]),
        Table("Not tried", ("Setting", "Why"), tuple(not_tried)),
        _run_table(document),
    )
    answer = document.answer
    runs = [(trial, trial.run) for trial in document.trials if trial.run is not None]
    code = tuple(printable(line) for line in answer.code)
    return Content(
        title=clean(answer.sentence),
        subtitle=" · ".join(filter(None, (clean(document.command), _subject(document)))),
        state=state,
        verdict=verdict,
        simulated=simulated_note(run for _, run in runs),
        tables=tuple(table for table in tables if table.rows),
        action=f"To keep {clean(answer.best)}:" if code else "",
        code=code,
        footer="gpuwatch",
        parts=tuple(dataclasses.replace(run_report.run_content(run), title=_run_title(trial)) for trial, run in runs),
    )


def _run_title(trial: Trial) -> str:
    which_run = "memory recorded" if trial.recorded else f"copy {trial.copy}" if trial.copy else f"round {trial.round}"
    return f"{clean(trial.name)}, {which_run}"


def _verdict(document: Experiment, summaries: Sequence[SettingSummary]) -> tuple[str, str]:
    if any(trial.run is not None and trial.run.verdict == "interrupted" for trial in document.trials):
        return "warning", "interrupted"
    if document.fits:
        return ("ok", "fits") if any(fit.fits for fit in document.fits) else ("error", "does not fit")
    if document.recover:
        any_verified = any(recovery.verified for recovery in document.recover)
        return ("ok", "recovered") if any_verified else ("error", "not recovered")
    if document.largest is not None:
        if document.largest.value is None:
            return "error", "none fits"
        return ("ok", "confirmed") if document.largest.confirmed else ("warning", "not confirmed")
    failed = sum(summary.was_tried and not summary.has_passed for summary in summaries)
    copies_passed = [trial.run.verdict in PASSED_VERDICTS for trial in document.trials if trial.copy and trial.run]
    if copies_passed and not all(copies_passed):
        return "warning", f"{copies_passed.count(False)} of {len(copies_passed)} copies failed"
    if not any(summary.was_tried for summary in summaries):
        return "warning", "nothing to compare"
    if failed:
        tried_count = sum(summary.was_tried for summary in summaries)
        return ("error" if failed == tried_count else "warning"), f"{failed} of {tried_count} failed"
    return "ok", "all ran"


def _subject(document: Experiment) -> str:
    runs = runs_in(document)
    frameworks = dict.fromkeys(framework_text(run.framework) for run in runs if run.framework)
    hosts = dict.fromkeys(clean(run.host) for run in runs if run.host)
    return " · ".join([count_text(len(runs), "run"), *hosts, *frameworks, document.started_at.strftime("%Y-%m-%d")])


def _setting_table(document: Experiment, summaries: Sequence[SettingSummary]) -> Table:
    runs = [summary for summary in summaries if summary.runs]
    if document.largest is not None:
        name = document.largest.name
        runs.sort(key=lambda summary: int(summary.trials[0].values.get(name, "0")))
    simulated = any(run.simulated for summary in runs for run in summary.runs)
    # Values differ in what they need, which NVML does not show of a framework that takes all memory at its start.
    peaks = any(run.trials[0].values and run.allocator_peak is not None for run in runs)
    timed = [run for run in runs if run.step_time is not None]
    heads, rows = heads_and_rows(map(_setting_row, runs))
    notes = [f"Each run is measured {document.rule}{_OR_ITS_END_TEXT if 'steps' in document.rule else ''}."]
    if any(run.memory for run in runs):
        notes.append("Memory is NVML's peak of the steps that ran: later steps can take more.")
    if peaks:
        notes.append(
            "ALLOCATOR is the most that the framework's own allocator had allocated, until it failed if it did."
        )
    if timed and not simulated:
        notes.append("± is half of the 95 % interval of the median step.")
    if not simulated and any(run.step_time is None and run.furthest_trial.steps for run in runs):
        notes.append(
            f"A STEP of {UNKNOWN} means fewer than {MIN_TIMED_STEPS} timed steps; the first ones are not timed."
        )
    if any(run.changes_results for run in runs):
        notes.append(f"{_CHANGES_RESULTS_MARK} changes what the program computes.")
    if simulated:
        notes.append(_SIMULATED_SPEEDS_NOTE)
    elif len({tuple(run.trials[0].values.items()) for run in timed}) > 1:
        notes.append("With a different value, a step may do different work.")
    notes += [*_signal_notes(document), *map(clean, document.notes)]
    named = [(run.name, run.representative_run) for run in runs if run.representative_run is not None]
    same_memory = peaks and _same_memory(runs)
    left_out = (*(_SPEEDS if simulated else ()), *(() if peaks else ("ALLOCATOR",)))
    return Table(
        "Settings compared" if document.largest is None else "Values tried",
        heads,
        rows,
        ("GPU MEMORY", "ALLOCATOR", *_SPEEDS),
        note=" ".join(notes),
        keep=("SETTING",),
        optional=("DEVICE MAP", "STEPS/S"),
        lines=3,
        sortable=True,
        charts=charts_with_data(
            bar_charts.allocator_peak_chart(named) if peaks else None,
            None if same_memory else bar_charts.held_memory_chart(named),
            None if simulated else bar_charts.speed_chart(named),
        ),
    ).without(*left_out)


def _same_memory(runs: Sequence[SettingSummary]) -> bool:
    """Whether NVML reports the same of all: of what they need, its bars would show nothing."""
    peaks = [amount for run in runs if run.memory is not None for amount in run.memory]
    return bool(peaks) and max(peaks) <= min(peaks) * (1 + SAME_MEMORY_SHARE)


def _setting_row(summary: SettingSummary) -> dict[str, str]:
    run, time = summary.representative_run, summary.step_time
    mark = f" {_CHANGES_RESULTS_MARK}" if summary.changes_results else ""
    verdict = run.verdict if run is not None else UNKNOWN
    times = f" ×{len(summary.runs)}" if len(summary.runs) > 1 and summary.has_passed else ""
    return {
        "SETTING": f"{clean(summary.name)}{mark}",
        "APPLIED": _applied_text(summary),
        "GPU MEMORY": UNKNOWN if summary.memory is None else size(summary.memory[1]),
        "ALLOCATOR": size(summary.allocator_peak),
        "DEVICE MAP": device_map(run) if run is not None else UNKNOWN,
        "STEP": _step_text(time),
        "STEPS/S": UNKNOWN if time is None or time.median_seconds <= 0 else count_rate(1 / time.median_seconds),
        "MEASURED": clean(summary.furthest_trial.covered).replace(" steps", "\u00a0steps"),
        "VERDICT": f"{_verdict_text(verdict)}{times}",
    }


def _verdict_text(verdict: str) -> str:
    return f"{GLYPHS.get(verdict, '•')}\u00a0{verdict}"


def _applied_text(summary: SettingSummary) -> str:
    if summary.overridden:
        return f"no, set at {clean(summary.overridden)}"
    if summary.not_tried:
        return "not applied"
    trial = summary.trials[0]
    # A variable that is there is all that is known of most; what TensorFlow made of others is.
    effective = {name: value for name, value in trial.effective.items() if not name.isupper()}
    if effective:
        return ", ".join(setting_text(clean(name), value) for name, value in effective.items())
    return {True: "yes", False: "no", None: UNKNOWN}[trial.applied]


def _step_text(time: StepTime | None) -> str:
    if time is None:
        return UNKNOWN
    share = relative_half_width(time)
    return f"{step_time_text(time.median_seconds)} ±{max(100 * share, 0.1):.{1 if share < 0.1 else 0}f} %"


def _unexpected(document: Experiment, trial: Trial) -> bool:
    """Whether a failure has to be explained: it is the setting's own, and no search was made for it."""
    searched = document.largest is not None or bool(document.fits)
    is_own = not trial.overridden and not trial.not_tried
    return is_own and not (searched and trial.run is not None and trial.run.verdict == "oom")


def _largest_value_table(document: Experiment) -> Table:
    """The border between values that fit and values that do not."""
    largest = document.largest
    if largest is None:
        return Table("", (), ())
    runs = {True: "in two runs each", False: "not confirmed"}[largest.confirmed]
    rows = [
        (f"Largest {clean(largest.name)} that fits", f"{clean(largest.value)}, {runs}"),
        ("First that fails", clean(largest.first_failing)),
        ("Setting", clean(largest.asked)),
        ("Longest run with it", clean(largest.covered)),
        ("The first that fails lacks", size(largest.short_bytes)),
        ("Each one more takes", size(largest.bytes_per_unit)),
        ("Fixed part", size(largest.fixed_bytes)),
        ("Left at the peak", size(largest.headroom_bytes)),
    ]
    line = "" if largest.fit_error_bytes is None else f" ({size(largest.fit_error_bytes)} off at most)"
    return Table(
        f"Largest {clean(largest.name)}",
        ("What", "Value"),
        tuple(row for row in rows if row[1] != UNKNOWN),
        note=f"By the framework's allocator; amounts by value are a line fitted to the runs that passed{line}. A "
        "larger value may fail although memory is free: it must be free in one piece.",
    )


def _card_table(document: Experiment) -> Table:
    fit_texts = {True: f"{GLYPHS['ok']}\u00a0yes", False: f"{GLYPHS['oom']}\u00a0no", None: "not known"}
    rows = tuple(
        (clean(fit.card), fit_texts[fit.fits], "it was run that way" if fit.tried else "it follows from the other runs")
        for fit in document.fits
    )
    need = document.needed_bytes
    note = f"It fails with {need[0] >> 20:,} MiB and runs with {need[1] >> 20:,} MiB." if need is not None else ""
    return Table("Cards", ("CARD", "RUNS", "HOW THAT IS KNOWN"), rows, note=note)


def _recovery_table(document: Experiment) -> Table:
    """What became of each setting that might have made the program pass."""
    rows = []
    for recovery in document.recover:
        glyph, passes = ("oom", "no") if recovery.runs else ("skipped", "not tried")
        if recovery.verified:
            glyph, passes = "ok", "verified"
        runs = f"{recovery.passed} of {recovery.runs}" if recovery.runs else UNKNOWN
        reason = clean_or_empty(recovery.reason)
        rows.append((clean(recovery.name), f"{GLYPHS[glyph]}\u00a0{passes}", runs, reason))
    note = "Verified: it passed, and then twice more, to the end of the program or past three times the failure."
    return Table("What makes it pass", ("SETTING", "PASSES", "RUNS", "WHY NOT"), tuple(rows), ("RUNS",), note=note)


def _copy_table(trials: Sequence[Trial]) -> Table:
    """Copies that ran at once: what each got, and what it cost."""
    rows = []
    for trial in trials:
        run = trial.run
        if run is None or not trial.copy:
            continue
        alone = next((item.step_time for item in trials if item.name == trial.name and not item.copy), None)
        slower = slowdown_factor(alone, [trial], simulated=run.simulated)
        rows.append(
            {
                "SETTING": clean(trial.name),
                "COPY": str(trial.copy),
                "GRANTED": run_report.granted_text(run),
                "GPU MEMORY": size(run.memory.nvml_peak_bytes) if run.device_map else UNKNOWN,
                "SLOWER BY": UNKNOWN if slower is None else f"× {slower:.2f}",
                "VERDICT": _verdict_text(run.verdict),
            }
        )
    heads, cells = heads_and_rows(rows)
    return Table("Copies at once", heads, cells, right=heads[1:5], keep=("SETTING",), optional=("GRANTED",))


def _failure_table(trials: Sequence[Trial]) -> Table:
    """Why runs failed, with the lines that show it: the first of each setting."""
    rows = list[tuple[str, str]]()
    failed = [trial for trial in trials if trial.run and trial.run.verdict not in (*PASSED_VERDICTS, "interrupted")]
    for trial, *_ in group_by(failed, lambda trial: trial.name).values():
        assert trial.run is not None
        name = f"{trial.name}, copy {trial.copy}" if trial.copy else trial.name
        rows.append((clean(name), clean(trial.run.verdict_reason)))
        rows += [("", line) for line in _decisive_lines(trial.run)]
        if trial.output:
            rows.append(("", f"its output: {clean(trial.output)}"))
    return Table("Failed", ("Setting", "Why"), tuple(rows))


def _decisive_lines(run: Run) -> list[str]:
    """The evidence of the cause; where there is none, the last lines of the output that are no messages by the way."""
    main = next((finding for finding in run.findings if finding.id == run.primary), None)
    evidence = main.evidence if main is not None else ()
    evidence_lines = [line for line in evidence if line.rstrip(".") not in run.verdict_reason]
    program_frames = [line.strip() for line in run.log_tail if _PROGRAM_FRAME.match(line)][-1:]
    if main is not None and main.id != "unknown":
        decisive = evidence_lines[:_MAX_DECISIVE_LINES]
    elif program_frames:
        decisive = [*program_frames, *evidence_lines][:_MAX_DECISIVE_LINES]
    else:
        lines = (line for line in run.log_tail if line.strip() and not USUAL_LINES.search(line))
        decisive = [line for line in lines if not _UNIMPORTANT_LINE.match(line)][-_MAX_DECISIVE_LINES:]
    return [clean(line) for line in decisive]


def _run_table(document: Experiment) -> Table:
    run_trials = [trial for trial in document.trials if trial.run is not None]
    counted = dict.fromkeys(clean(trial.counted) for trial in run_trials if trial.counted)
    simulated = any(trial.run is not None and trial.run.simulated for trial in run_trials)
    table = Table(
        "Every run",
        *heads_and_rows(map(_trial_row, run_trials if len(run_trials) > 1 else ())),
        right=("Round", "GPU memory", "Step", "Steps"),
        note=(f"Steps are {', '.join(counted)}. " if counted else "")
        + "A signal was sent only after the measurement; what the program did after that does not count.",
        sortable=True,
        only_in_files=True,
    )
    return table.without("Step") if simulated else table


def _signal_notes(document: Experiment) -> list[str]:
    """What ended programs that did not end at SIGINT."""
    forced_trials = (trial for trial in document.trials if trial.ended_by in ("SIGTERM", "SIGKILL"))
    return [
        f"SIGINT did not end {', '.join(dict.fromkeys(clean(trial.name) for trial in ended))} within 5 s: {word} did."
        for word, ended in group_by(forced_trials, lambda trial: trial.ended_by).items()
    ]


def _trial_row(trial: Trial) -> dict[str, str]:
    run = trial.run
    assert run is not None
    return {
        "Round": "memory" if trial.recorded else f"copy {trial.copy}" if trial.copy else str(trial.round),
        "Setting": clean(trial.name),
        "GPU memory": size(run.memory.nvml_peak_bytes) if run.device_map else UNKNOWN,
        "Step": _step_text(trial.step_time),
        "Steps": clean(trial.steps),
        "Ended by": clean(trial.ended_by),
        "Verdict": _verdict_text(run.verdict),
    }


# Who held GPU memory under each setting (--memory)


def _recorded_tables(trials: Sequence[Trial]) -> Iterator[Table]:
    """The groups of each setting's peak, and the largest holders; nothing if no run was recorded."""
    recorded_trials = {trial.name: trial for trial in trials if trial.recorded and trial.run is not None}
    if not recorded_trials:
        return
    profiles = recorded_profiles(trials)
    yield _group_table(recorded_trials, profiles)
    if len(profiles) > 1:
        yield _holder_table(dict(list(profiles.items())[:_MAX_SETTINGS]))


def _group_table(recorded_trials: dict[str, Trial], profiles: dict[str, MemoryProfile]) -> Table:
    top = max((profile.peak_bytes for profile in profiles.values()), default=0)
    groups_by_setting = {name: _peak_groups(profile) for name, profile in profiles.items()}
    groups = [
        group
        for group in (*MEMORY_GROUPS, _NOT_RECORDED)
        if any(parts.get(group, 0) >= max(_MIN_SHARE * top, 1) for parts in groups_by_setting.values())
    ]
    cells = []
    for name, trial in recorded_trials.items():
        profile, amounts = profiles.get(name), groups_by_setting.get(name, {})
        cells.append(
            {
                "SETTING": clean(name),
                "PEAK": size(profile.peak_bytes) if profile is not None else UNKNOWN,
                **{group.upper(): size(amounts[group]) if amounts.get(group) else UNKNOWN for group in groups},
                "LARGEST HOLDER": _why_no_profile(trial) if profile is None else _largest_holder(profile),
            }
        )
    heads, rows = heads_and_rows(cells)
    bars = []
    for name, amounts in groups_by_setting.items():
        shown_groups = ((group, amounts[group]) for group in groups if amounts.get(group))
        parts = tuple(
            BarPart(MEMORY_GROUPS.get(group, _FREE_PART)[0], group, held, size(held)) for group, held in shown_groups
        )
        bars.append(BarRow(clean(name), parts, size(profiles[name].peak_bytes)))
    chart = BarChart("At the peak, by group", tuple(bars), float(top), "from 0 to the largest peak") if top else None
    return Table(
        "Who held the memory",
        heads,
        rows,
        heads[1:-1],
        note="Bytes in use by the framework's allocator at its peak, recorded in one more run of each setting: "
        "recording slows the program down, so its speed is not compared.",
        keep=("SETTING",),
        below="LARGEST HOLDER",
        charts=charts_with_data(chart),
    )


def _peak_groups(profile: MemoryProfile) -> dict[str, int]:
    missing = profile.peak_bytes - profile.live_bytes
    return {**profile.groups, **({_NOT_RECORDED: missing} if missing > 0 else {})}


def _largest_holder(profile: MemoryProfile) -> str:
    if not profile.holders:
        return UNKNOWN
    holder = profile.holders[0]
    return f"{clean(holder_name(holder, profile.tool)) or 'an op without a name'}: {size(holder.allocated_bytes)}"


def _why_no_profile(trial: Trial) -> str:
    problems = trial.run.problems if trial.run is not None else ()
    reasons = (text.partition(": ")[2] for text in problems if text.startswith("memory"))
    return clean(next(reasons, "no GPU memory was recorded"))


def _holder_table(profiles: dict[str, MemoryProfile]) -> Table:
    """The largest holders under each setting, those with the same name on one line."""
    held: dict[tuple[str, str], dict[str, int]] = {}
    for name, profile in profiles.items():
        for holder in profile.holders:
            by_setting = held.setdefault((holder.group, holder.variable or strip_calls(holder.op) or holder.source), {})
            by_setting[name] = by_setting.get(name, 0) + holder.allocated_bytes
    largest = sorted(held.items(), key=lambda entry: -max(entry[1].values()))[:_MAX_HOLDERS]
    rows = (
        (clean(name), clean(group), *(size(by_setting.get(setting)) for setting in profiles))
        for (group, name), by_setting in largest
    )
    return Table(
        "Largest holders, side by side",
        ("Op, variable or line", "Group", *map(clean, profiles)),
        tuple(rows),
        tuple(map(clean, profiles)),
        note="Entries with the same name are added up, regardless of shape.",
        folded=True,
        sortable=True,
    )
