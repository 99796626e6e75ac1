"""The content of a doctor's report: verdict and action, the checks by group, libraries, device map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.doctor import STATE_ORDER, Check, Doctor
from gpuwatch.core.model.findings import Finding
from gpuwatch.explain.logs.device_names import is_gpu
from gpuwatch.share.reports.report_elements import STATE_BY_SEVERITY, Content, Table, heads_and_rows
from gpuwatch.share.reports.report_text import SIMULATED_MACHINE, clean, clean_finding, framework_text, variable_value
from gpuwatch.share.reports.run_tables import device_map_table

CHECK_MARKS = {"pass": "● pass", "warn": "▲ warn", "fail": "✖ FAIL", "skip": "○ skip"}
"""Sign and word, so that color is never the only sign."""
GROUP_TITLES = {
    "driver": "Driver",
    "devices": "Devices",
    "container": "Container",
    "environment": "Environment variables",
    "framework": "Framework",
}
_SELF_EXPLANATORY_VERSIONS = ("os", "libc", "processor")


def doctor_content(document: Doctor) -> Content:
    """Everything that the doctor found."""
    main = next((finding for finding in document.findings if finding.id == document.primary), None)
    ordered = sorted(document.findings, key=lambda finding: finding is not main)
    groups = group_by(document.checks, lambda check: GROUP_TITLES.get(check.group, check.group))
    heads = ("State", "Check", "Found → what to do")
    tables = [
        Table(name, heads, tuple(map(check_row, checks)), keep=heads[:2], below=heads[2])
        for name, checks in groups.items()
    ]
    variables = ((clean(name), variable_value(value)) for name, value in document.environment.items())
    tables += [
        libraries_table(document),
        device_map_table(document.device_map),
        packages_table(document),
        Table("Variables that are set", ("Name", "Value"), tuple(variables)),
    ]
    return Content(
        title="gpuwatch doctor",
        subtitle=" · ".join(_subtitle(document)),
        state=STATE_BY_SEVERITY[main.severity] if main is not None else "ok",
        verdict=clean(document.primary or "healthy"),
        reason=_reason(document, main),
        simulated=SIMULATED_MACHINE if document.simulated else "",
        facts=tuple(_facts(document, main)),
        tables=tuple(table for table in tables if table.rows),
        findings=tuple(clean_finding(finding) for finding in ordered),
        log_tail=tuple(clean(line) for line in document.log_tail),
        footer="gpuwatch doctor",
    )


def _subtitle(document: Doctor) -> Iterator[str]:
    if document.host:
        yield clean(document.host)
    if document.framework is not None:
        yield framework_text(document.framework)
        yield clean(document.framework.interpreter)
    yield document.taken_at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _reason(document: Doctor, main: Finding | None) -> str:
    if main is None or main.id == "healthy":
        gpus = sum(is_gpu(entry.framework_device) for entry in document.device_map)
        return f"{CAUSES['healthy']}." + (f" {count_text(gpus, 'GPU')} can be used." if gpus else "")
    return f"{clean(main.title).rstrip('.')}{'' if main.certainty == 'fact' else ' (likely)'}."


def _facts(document: Doctor, main: Finding | None) -> Iterator[tuple[str, str]]:
    if main is not None and main.action:
        yield "do", clean(main.action)
    yield "checks", f"{check_counts_text(document.checks)}, in {document.took_seconds:.1f} s"
    failed = [check.title or check.id for check in document.checks if check.state == "fail"]
    if failed:
        yield "failed", ", ".join(map(clean, failed))
    versions = [
        clean(value) if name in _SELF_EXPLANATORY_VERSIONS else f"{name.replace('_', ' ')} {clean(value)}"
        for name, value in document.versions.items()
        if value
    ]
    yield "versions", ", ".join(versions) or "none known"


def check_counts_text(checks: Sequence[Check]) -> str:
    """``1 fail, 0 warn, 2 skip, 17 pass``."""
    return ", ".join(f"{sum(check.state == state for check in checks)} {state}" for state in STATE_ORDER)


def check_row(check: Check) -> tuple[str, str, str]:
    """State, name, and what was found with what to do."""
    detail_and_action = clean(check.detail) + (f" → {clean(check.action)}" if check.action else "")
    return CHECK_MARKS[check.state], clean(check.title or check.id), detail_and_action


def libraries_table(document: Doctor) -> Table:
    """Each library: where it was found, and whether the framework opened it."""
    heads, rows = heads_and_rows(
        {
            "Wanted": clean(library.name),
            "State": library.state,
            "Version": clean(library.version),
            "From": clean(library.origin),
            "Opened": clean(library.opened),
            "File": clean(library.path or library.detail)
            + (f" (in front of {clean(library.shadows)})" if library.shadows else ""),
        }
        for library in document.libraries
    )
    note = "Opened: whether the framework itself opened it in the doctor's run."
    return Table("Libraries", heads, rows, keep=heads[:5], below="File", note=note)


def packages_table(document: Doctor) -> Table:
    """The packages in the framework's environment."""
    rows = tuple((clean(entry.name), clean(entry.version)) for entry in document.distributions)
    return Table("Installed distributions", ("Name", "Version"), rows, folded=True)
