"""The content of a diagnostic report, in the order in which a helper asks.

Verdict and action; then which device is which GPU, whether driver, build and cards fit, which variables have
an effect, which libraries are loaded from where, who uses the GPUs, what ran out of memory or fell back, how
fast it was, and raw log lines.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gpuwatch.core.formatting.safe_text import printable
from gpuwatch.core.masking.mask_secrets import MASK
from gpuwatch.core.model.diagnostic_report import Diagnostic, SourcedFinding
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.findings import CAUSES
from gpuwatch.share.reports import diagnostic_machine_tables as machine
from gpuwatch.share.reports import diagnostic_run_tables as runs
from gpuwatch.share.reports.diagnostic_summary import consequence, summary_rows
from gpuwatch.share.reports.doctor_report import libraries_table, packages_table
from gpuwatch.share.reports.report_elements import (
    SIMULATED_MACHINE,
    STATES,
    VALUES,
    Content,
    Table,
    clean,
    clean_finding,
)

_WATCH = "If a program still fails or is slow: gpuwatch run -- python train.py, then create this report again."
_NAMES = {"tensorflow": "TensorFlow", "torch": "PyTorch"}
_MAX_EVIDENCE = 6


def diagnostic_content(document: Diagnostic) -> Content:
    """The content of a diagnostic report."""
    main = document.findings[0] if document.findings and document.findings[0].id == document.primary else None
    doctor, snapshot, probes = document.doctor, document.snapshot, document.probes
    watch = _WATCH if document.primary == "healthy" and not document.programs else ""
    tables = (
        machine.device_map_table(document),
        machine.check_table(document, doctor) if doctor is not None else None,
        machine.passed_checks(document, doctor) if doctor is not None else None,
        machine.variable_table(document),
        libraries_table(doctor) if doctor is not None and doctor.libraries else None,
        packages_table(doctor) if doctor is not None else None,
        machine.user_table(snapshot) if snapshot is not None else None,
        runs.program_table(document.programs, document.taken_at, main),
        runs.ooms(document),
        runs.fallbacks(document),
        runs.probe_comparison(probes, timeline=not document.programs) if probes is not None else None,
        Table("Not gathered", ("Part", "Why"), tuple((clean(g.part), clean(g.why)) for g in document.missing)),
    )
    return Content(
        title="GPU diagnostic report",
        subtitle=" · ".join(_subtitle(document)),
        state="unknown" if document.primary is None else STATES[main.severity] if main is not None else "ok",
        verdict=document.primary or "unknown",
        reason=_reason(document, main),
        certainty=main.certainty if main is not None and main.id != "healthy" else "",
        simulated=_simulated(document),
        facts=tuple(summary_rows(document, main)),
        tables=tuple(table for table in tables if table is not None and (table.rows or table.charts or table.note)),
        action=printable(main.action) if main is not None and main.action else watch,
        evidence=tuple(clean(line) for line in main.evidence[:_MAX_EVIDENCE]) if main is not None else (),
        findings=tuple(clean_finding(found) for found in document.findings if found is not main),
        raw=tuple(runs.raw_logs(document)),
        footer=_footer(document),
        parts=tuple(runs.program_part(run, main, document.programs) for run in document.programs),
    )


def _simulated(document: Diagnostic) -> str:
    if not document.simulated:
        return ""
    empty = any(run.simulation == "driver" and run.device_map for run in document.programs)
    return SIMULATED_MACHINE + (f" {VALUES}" if empty else "")


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
        usable = _usable(document.doctor)
        # The note on a program that failed by itself.
        unknown = (found for found in document.findings if (found.severity, found.id) == ("info", "unknown"))
        own = next((found for found in unknown if "".join(found.sources[:1]).startswith("run of ")), None)
        return (
            f"{CAUSES['healthy']}.{f' {usable}.' if usable else ''}{f' {clean(own.title)}.' if own is not None else ''}"
        )
    harm = consequence(document, main)
    return f"{f'{harm}: ' if harm else ''}{clean(main.title).rstrip('.')}."


def _usable(doctor: Doctor | None) -> str:
    if doctor is None or doctor.framework is None:
        return ""
    count = sum("GPU" in entry.framework_device for entry in doctor.device_map)
    name = _NAMES.get(doctor.framework.name, clean(doctor.framework.name))
    return f"{name} can use {count} GPU{'' if count == 1 else 's'}" if count else ""


def _footer(document: Diagnostic) -> str:
    masked = MASK in msgspec.json.encode(document).decode()
    masking = f"secrets are shown as {MASK}" if masked else "no secrets were found"
    names = "users, hosts and paths are replaced" if document.redacted else "users, hosts and paths are not replaced"
    more = "" if document.redacted else " (gpuwatch report --redact does that)"
    version = clean(document.gpuwatch_version)
    return f"gpuwatch {version}, gathered in {document.took_seconds:.1f} s; {masking}; {names}{more}."
