"""Programs and probes in a diagnostic report: how they ended, out-of-memory failures, fallbacks, and logs."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Iterator, Sequence

from gpuwatch.core.formatting.safe_text import printable
from gpuwatch.core.formatting.units import UNKNOWN, size
from gpuwatch.core.model.diagnostic_report import Diagnostic, SourcedFinding
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.run_comparison import Comparison
from gpuwatch.share.reports import charts, run_report
from gpuwatch.share.reports.chart_types import Timeline
from gpuwatch.share.reports.comparison_report import comparison_table
from gpuwatch.share.reports.diagnostic_summary import age_text, ended_at, how_it_ended, name_of, utc
from gpuwatch.share.reports.report_elements import Content, Table, clean
from gpuwatch.share.reports.report_log_lines import readable
from gpuwatch.share.reports.run_tables import cut, device_map, fallback_table, oom_table, said_once

_MAX_RAW_LINES = 60
_MAX_LOGS = 8


def program_table(runs: Sequence[Run], now: datetime.datetime, main: SourcedFinding | None) -> Table:
    """The user's own programs, newest first."""
    rows = tuple(
        (
            name_of(run),
            f"{utc(ended_at(run))}, {age_text(run, now)}",
            how_it_ended(run, main),
            device_map(run),
            _held_text(run),
            run_report.fell_back(run),
        )
        for run in runs
    )
    timelines = tuple(
        Timeline(f"Memory of {name_of(run, runs)}{charts.on_device(run)}", run)
        for run in runs[:2]
        if charts.memory_changed(run)
    )
    heads = ("Program", "Ended", "How", "Device map", "Peak held (NVML)", "Fell back")
    note = "Device map: the framework's device → NVML's index. Ages are as of this report."
    return Table("Watched programs", heads, rows, note=note if rows else "", charts=timelines, below="How")


def _held_text(run: Run) -> str:
    found = [entry for entry in run.memory.devices if entry.process_bytes is not None]
    if len(found) > 1:
        return ", ".join(f"GPU {entry.index} {size(entry.process_bytes)}" for entry in found)
    return size(run.memory.nvml_peak_bytes)


def ooms(document: Diagnostic) -> Table:
    """Each failure with its numbers; one without numbers is left out if its run has others."""

    def shown(run: Run) -> Table:
        numbers = [oom for oom in run.ooms if oom.requested_bytes is not None or oom.limit_bytes is not None]
        return oom_table(sorted(numbers or run.ooms, key=lambda oom: oom.expected)[:3])

    table = _by_run(document, shown)
    notes = [table.note]
    if any(oom.expected for run in _runs(document) for oom in run.ooms):
        notes.append("Expected: the probe causes it on purpose, and may catch it.")
    if any(run.workers and run.ooms for run in _runs(document)):
        notes.append("Limit and in-use memory are those of the process that failed.")
    return dataclasses.replace(table, note=" ".join(notes) if table.rows else "")


def fallbacks(document: Diagnostic) -> Table:
    """Ops that did not run where asked."""
    return said_once(_by_run(document, lambda run: fallback_table(run.fallbacks[:5])))


def _by_run(document: Diagnostic, table_of: Callable[[Run], Table]) -> Table:
    """The tables of all runs as one, with a column for the run in front."""
    runs = _runs(document)
    parts = [(name_of(run, runs), table) for run in runs if (table := table_of(run)).rows]
    rows = [(name, *row) for name, part in parts for row in part.rows]
    first = parts[0][1] if parts else Table("", (), ())
    return dataclasses.replace(first, heads=("Run", *first.heads), rows=cut(rows))


def probe_comparison(probes: Comparison, *, timeline: bool) -> Table | None:
    """The probes side by side; with the memory timeline of the latest if no program shows one."""
    if not probes.runs:
        return None
    table = comparison_table(probes, "Probes compared")
    drawn = [run for run in probes.runs if charts.memory_changed(run)]
    if not timeline or not drawn:
        return table
    latest = max(drawn, key=lambda run: run.started_at)
    chart = Timeline(f"Memory of the latest probe, {clean(latest.config)}{charts.on_device(latest)}", latest)
    return dataclasses.replace(table, charts=(*table.charts, chart))


def program_part(run: Run, main: SourcedFinding | None, among: Sequence[Run]) -> Content:
    """A program by itself, without its findings, log and headline, which are above."""
    whole = run_report.run_content(run)
    causes = ", ".join(dict.fromkeys(found.id for found in run.findings if found.id != "healthy"))
    known = tuple(fact for fact in whole.facts if fact[1] != UNKNOWN)
    facts = (*known, *((("found", f"{causes} (see above)"),) if causes else ()))
    at_the_top = main is not None and clean(main.title).rstrip(".") in whole.reason
    return dataclasses.replace(
        whole,
        title=name_of(run, among),
        subtitle=clean(run.title),
        reason="see the top" if at_the_top else whole.reason,
        facts=facts,
        findings=(),
        log_tail=(),
    )


def raw_logs(document: Diagnostic) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The last log lines of the doctor, of programs, and of failed probes."""
    doctor = document.doctor
    if doctor is not None and doctor.log_tail:
        yield "Log of the doctor's run", readable(doctor.log_tail, _MAX_RAW_LINES, simulated=doctor.simulated)
    count = 0
    for run in _runs(document):
        bad = run.verdict in ("error", "timeout") or (run.verdict == "oom" and not all(o.expected for o in run.ooms))
        if run.log_tail and (run.is_program or bad) and count < _MAX_LOGS:
            count += 1
            yield (
                f"Log of {name_of(run, _runs(document))}",
                readable(run.log_tail, _MAX_RAW_LINES, simulated=run.simulated),
            )
    for excerpt in document.excerpts:
        title = (
            "nvidia-smi" if excerpt.name == "nvidia-smi" else f"{clean(excerpt.name).capitalize()}, lines about GPUs"
        )
        yield title, tuple(printable(line) for line in excerpt.lines)


def _runs(document: Diagnostic) -> tuple[Run, ...]:
    return (*document.programs, *(document.probes.runs if document.probes is not None else ()))
