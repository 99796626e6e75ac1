"""The content of a diagnostic report, in the order in which a helper asks.

Verdict and action; then which device is which GPU, whether driver, build and cards fit, which variables have
an effect, which libraries are loaded from where, who uses the GPUs, what ran out of memory or fell back, how
fast it was, and raw log lines.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Iterator, Sequence

import msgspec

from gpuwatch.core.formatting.grouped_findings import grouped_findings
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import UNKNOWN, size
from gpuwatch.core.masking.mask_secrets import MASK
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.comparison import Comparison
from gpuwatch.core.model.diagnostic_report import Diagnostic, SourcedFinding
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.run import Run
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.logs.device_names import is_gpu
from gpuwatch.share.reports import diagnostic_machine_tables as machine_tables
from gpuwatch.share.reports import memory_over_time, run_report, run_tables
from gpuwatch.share.reports.comparison_conclusion import run_failed
from gpuwatch.share.reports.comparison_report import comparison_table
from gpuwatch.share.reports.diagnostic_summary import (
    age_text,
    consequence,
    ended_at,
    how_it_ended,
    run_name,
    summary_rows,
    utc_text,
)
from gpuwatch.share.reports.doctor_report import libraries_table, packages_table
from gpuwatch.share.reports.report_elements import STATE_BY_SEVERITY, Content, MemoryTimeline, Table
from gpuwatch.share.reports.report_log_lines import condense_log
from gpuwatch.share.reports.report_text import SIMULATED_MACHINE, VALUES_NOTE, clean, clean_finding, redaction_text

_WATCH_HINT = "If a program still fails or is slow: gpuwatch run -- python train.py, then create this report again."
_NAMES = {"tensorflow": "TensorFlow", "torch": "PyTorch"}
_MAX_EVIDENCE = 6
_MAX_RAW_LINES = 60
_MAX_LOGS = 8


def diagnostic_content(document: Diagnostic) -> Content:
    """Cause, action and summary first; tables with nothing to say are left out."""
    findings = grouped_findings(document.findings, document.snapshot.devices if document.snapshot is not None else ())
    main = findings[0] if findings and findings[0].id == document.primary else None
    doctor, snapshot, probes = document.doctor, document.snapshot, document.probes
    watch_hint = _WATCH_HINT if document.primary == "healthy" and not document.programs else ""
    tables = (
        machine_tables.device_map_table(document),
        machine_tables.check_table(document, doctor) if doctor is not None else None,
        machine_tables.passed_check_table(document, doctor) if doctor is not None else None,
        machine_tables.variable_table(document),
        libraries_table(doctor) if doctor is not None and doctor.libraries else None,
        packages_table(doctor) if doctor is not None else None,
        machine_tables.user_table(snapshot) if snapshot is not None else None,
        _program_table(document.programs, document.taken_at, main),
        _oom_table(document),
        run_tables.with_shared_detail_as_note(
            _tables_by_run(document, lambda run: run_tables.fallback_table(run.fallbacks[:5]))
        ),
        _probe_comparison(probes, timeline=not document.programs) if probes is not None else None,
        Table("Not gathered", ("Part", "Why"), tuple((clean(gap.part), clean(gap.why)) for gap in document.missing)),
    )
    return Content(
        title="GPU diagnostic report",
        subtitle=" · ".join(_subtitle(document)),
        state="unknown" if document.primary is None else STATE_BY_SEVERITY[main.severity] if main is not None else "ok",
        verdict=document.primary or "unknown",
        reason=_reason(document, main),
        certainty=main.certainty if main is not None and main.id != "healthy" else "",
        simulated=_simulated(document),
        facts=tuple(summary_rows(document, main)),
        tables=tuple(table for table in tables if table is not None and (table.rows or table.charts or table.note)),
        action=printable(main.action) if main is not None and main.action else watch_hint,
        evidence=tuple(clean(line) for line in main.evidence[:_MAX_EVIDENCE]) if main is not None else (),
        findings=tuple(clean_finding(finding) for finding in findings if finding is not main),
        raw=tuple(_raw_logs(document)),
        footer=_footer(document),
        parts=tuple(_program_part(run, main, document.programs) for run in document.programs),
    )


def _simulated(document: Diagnostic) -> str:
    if not document.simulated:
        return ""
    empty = any(run.simulation == "driver" and run.device_map for run in document.programs)
    return SIMULATED_MACHINE + (f" {VALUES_NOTE}" if empty else "")


def _subtitle(document: Diagnostic) -> Iterator[str]:
    if document.host:
        yield clean(document.host)
    yield document.taken_at.strftime("%Y-%m-%d %H:%M:%S %Z").strip()
    yield f"gpuwatch {clean(document.gpuwatch_version)}"
    if document.redacted:
        yield "users, hosts and paths replaced"


def _reason(document: Diagnostic, main: SourcedFinding | None) -> str:
    if document.primary is None:
        return "Neither the GPUs nor the environment could be examined."
    if main is None or main.id == "healthy":
        # The note on a program that failed by itself.
        errors = (finding for finding in document.findings if finding.id == "program.error")
        of_runs = (clean(error.title) for error in errors if "".join(error.sources[:1]).startswith("run of "))
        sentences = (CAUSES["healthy"], _usable(document.doctor), next(of_runs, ""))
        return " ".join(f"{sentence}." for sentence in sentences if sentence)
    consequence_text = consequence(document, main)
    return f"{f'{consequence_text}: ' if consequence_text else ''}{clean(main.title).rstrip('.')}."


def _usable(doctor: Doctor | None) -> str:
    if doctor is None or doctor.framework is None:
        return ""
    count = sum(is_gpu(entry.framework_device) for entry in doctor.device_map)
    name = _NAMES.get(doctor.framework.name, clean(doctor.framework.name))
    return f"{name} can use {count_text(count, 'GPU')}" if count else ""


def _footer(document: Diagnostic) -> str:
    has_masked = MASK in msgspec.json.encode(document).decode()
    masking = f"secrets are shown as {MASK}" if has_masked else "no secrets were found"
    gathering = f"gathered in {document.took_seconds:.1f} s"
    return f"gpuwatch {clean(document.gpuwatch_version)}, {gathering}; {masking}; {redaction_text(document.redacted)}."


# Programs and probes


def _program_table(runs: Sequence[Run], now: datetime.datetime, main: SourcedFinding | None) -> Table:
    rows = tuple(
        (
            run_name(run),
            f"{utc_text(ended_at(run))}, {age_text(run, now)}",
            how_it_ended(run, main),
            run_tables.device_map(run),
            _held_text(run),
            run_report.fallback_text(run),
        )
        for run in runs
    )
    timelines = tuple(
        MemoryTimeline(f"Memory of {run_name(run, runs)}{memory_over_time.device_suffix(run)}", run)
        for run in runs[:2]
        if memory_over_time.memory_changed(run)
    )
    heads = ("Program", "Ended", "How", "Device map", "Peak held (NVML)", "Fell back")
    note = "Device map: the framework's device → NVML's index. Ages are as of this report."
    return Table("Watched programs", heads, rows, note=note if rows else "", charts=timelines, below="How")


def _held_text(run: Run) -> str:
    held = [entry for entry in run.memory.devices if entry.process_bytes is not None]
    if len(held) > 1:
        return ", ".join(f"GPU {entry.index} {size(entry.process_bytes)}" for entry in held)
    return size(run.memory.nvml_peak_bytes)


def _oom_table(document: Diagnostic) -> Table:
    """Each failure with its numbers; one without numbers is left out if its run has others."""

    def oom_table_of_run(run: Run) -> Table:
        numbers = [oom for oom in run.ooms if oom.requested_bytes is not None or oom.limit_bytes is not None]
        return run_tables.oom_table(sorted(numbers or run.ooms, key=lambda oom: oom.expected)[:3])

    table = _tables_by_run(document, oom_table_of_run)
    notes = [table.note]
    if any(oom.expected for run in _runs(document) for oom in run.ooms):
        notes.append("Expected: the probe causes it on purpose, and may catch it.")
    if any(run.workers and run.ooms for run in _runs(document)):
        notes.append("Limit and in-use memory are those of the process that failed.")
    return dataclasses.replace(table, note=" ".join(notes) if table.rows else "")


def _tables_by_run(document: Diagnostic, table_of: Callable[[Run], Table]) -> Table:
    """The tables of all runs as one, with a column for the run in front."""
    runs = _runs(document)
    parts = [(run_name(run, runs), table) for run in runs if (table := table_of(run)).rows]
    rows = [(name, *row) for name, part in parts for row in part.rows]
    first_table = parts[0][1] if parts else Table("", (), ())
    return dataclasses.replace(first_table, heads=("Run", *first_table.heads), rows=run_tables.first_rows(rows))


def _probe_comparison(probes: Comparison, *, timeline: bool) -> Table | None:
    """The probes side by side; with the memory timeline of the latest if no program shows one."""
    if not probes.runs:
        return None
    table = comparison_table(probes, "Probes compared")
    with_memory = [run for run in probes.runs if memory_over_time.memory_changed(run)]
    if not timeline or not with_memory:
        return table
    latest = max(with_memory, key=lambda run: run.started_at)
    title = f"Memory of the latest probe, {clean(latest.config)}{memory_over_time.device_suffix(latest)}"
    return dataclasses.replace(table, charts=(*table.charts, MemoryTimeline(title, latest)))


def _program_part(run: Run, main: SourcedFinding | None, runs: Sequence[Run]) -> Content:
    """A program by itself, without its findings, log and headline, which are above."""
    content = run_report.run_content(run)
    causes = ", ".join(dict.fromkeys(finding.id for finding in run.findings if finding.id != "healthy"))
    known_facts = tuple(fact for fact in content.facts if fact[1] != UNKNOWN)
    facts = (*known_facts, *((("found", f"{causes} (see above)"),) if causes else ()))
    is_main_cause = main is not None and clean(main.title).rstrip(".") in content.reason
    return dataclasses.replace(
        content,
        title=run_name(run, runs),
        subtitle=clean(run.title),
        reason="see the top" if is_main_cause else content.reason,
        facts=facts,
        findings=(),
        log_tail=(),
    )


def _raw_logs(document: Diagnostic) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The last log lines of the doctor, of programs, and of failed probes."""
    doctor = document.doctor
    if doctor is not None and doctor.log_tail:
        yield "Log of the doctor's run", condense_log(doctor.log_tail, _MAX_RAW_LINES, simulated=doctor.simulated)
    runs = _runs(document)
    for run in [run for run in runs if run.log_tail and (run.is_program or run_failed(run))][:_MAX_LOGS]:
        yield f"Log of {run_name(run, runs)}", condense_log(run.log_tail, _MAX_RAW_LINES, simulated=run.simulated)
    for excerpt in document.excerpts:
        name = clean(excerpt.name)
        title = name if name == "nvidia-smi" else f"{name.capitalize()}, lines about GPUs"
        yield title, tuple(map(printable, excerpt.lines))


def _runs(document: Diagnostic) -> tuple[Run, ...]:
    return (*document.programs, *(document.probes.runs if document.probes is not None else ()))
