"""The content of an explanation: cause and action first, then everything that the log says."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.formatting.sentences import and_more, count_text
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.findings import SEVERITY_ORDER, Finding
from gpuwatch.core.safe_text import shorten
from gpuwatch.explain.logs.device_names import is_gpu
from gpuwatch.explain.traces.largest_holder import describe_largest_holder
from gpuwatch.share.reports import run_tables
from gpuwatch.share.reports.memory_profile_tables import largest_holder_fact, memory_profile_tables
from gpuwatch.share.reports.report_elements import STATE_BY_SEVERITY, Content, Table
from gpuwatch.share.reports.report_text import clean, clean_finding
from gpuwatch.share.reports.run_memory_tables import profiles_table
from gpuwatch.share.reports.snapshot_report import device_tables

_MAX_LAST_LINE_CHARS = 100
_STATUS_SIGNS = {"pass": "●", "warn": "▲", "fail": "✖", "skip": "○"}


def explanation_content(document: Explanation) -> Content:
    """Everything that was found in a log."""
    main = next((finding for finding in document.findings if finding.id == document.primary), None)
    recognized = not _recognized_nothing(document)
    verdict = clean(document.primary or ("healthy" if document.kind == "log" else "read"))
    findings = sorted(document.findings, key=lambda finding: (finding is not main, SEVERITY_ORDER[finding.severity]))
    frameworks = " and ".join(clean(name) for name in document.frameworks)
    lines = count_text(document.lines, "line")
    content_text = lines if document.kind == "log" else document.kind
    source = clean(document.source or "log")
    name = source.rpartition("/")[2] or source
    tables = (
        *memory_profile_tables(document.memory_profiles),
        profiles_table(document.memory_profiles),
        _test_table(document),
        *(device_tables(document.machine) if document.machine is not None else ()),
        run_tables.device_map_table(document.device_map),
        run_tables.oom_table(document.ooms).without("Expected"),
        run_tables.with_shared_detail_as_note(run_tables.fallback_table(document.fallbacks)),
        Table("Missing libraries", ("Library",), tuple((clean(name),) for name in document.missing_libraries)),
        run_tables.placement_table(sorted(document.placements, key=lambda placement: -placement.count)),
        run_tables.error_table(document.errors).without("Expected"),
        Table("Not recognized", ("Line",), run_tables.first_rows([(clean(line),) for line in document.unrecognised])),
    )
    return Content(
        title=name,
        subtitle=" · ".join(part for part in (content_text, frameworks, source if source != name else "") if part),
        state="unknown" if not recognized else STATE_BY_SEVERITY[main.severity] if main is not None else "ok",
        verdict=verdict if recognized else "unknown",
        reason=_reason(document, main),
        facts=tuple(_facts(document, main)),
        tables=tuple(table for table in tables if table.rows),
        findings=tuple(map(clean_finding, findings)) if recognized else (),
        footer="gpuwatch explain",
    )


def _test_table(document: Explanation) -> Table:
    rows = [
        (f"{_STATUS_SIGNS[test.status]} {test.status}", clean(test.name), clean(test.gpus), clean(test.category))
        for test in document.gpu_tests
    ]
    heads = ("Result", "Test", "GPU", "Category")
    return Table("Tests of the GPUs", heads, run_tables.first_rows(rows), keep=("Result",), sortable=True)


def _reason(document: Explanation, main: Finding | None) -> str:
    if document.memory_profiles and main is None:
        return clean(f"{describe_largest_holder(document.memory_profiles[0])}.")
    stated = main is not None and main.certainty == "fact"  # what the file is instead of a log
    if _recognized_nothing(document) and not stated:
        last = next((line for finding in document.findings for line in finding.evidence), "")
        last_line_text = f"; last line: {clean(shorten(last, _MAX_LAST_LINE_CHARS))}" if last else ""
        return f"gpuwatch recognizes nothing in it that says whether its program worked{last_line_text}."
    title = main.title if main is not None else CAUSES.get(document.primary or "healthy", "")
    return clean(title).rstrip(".") + "."


def _recognized_nothing(document: Explanation) -> bool:
    """Whether nothing in the log was recognized, not even a healthy program."""
    if document.findings:
        return document.primary == "unknown" and all(finding.severity == "info" for finding in document.findings)
    if document.kind != "log":
        return False
    facts = (document.frameworks, document.device_map, document.errors, document.placements, document.ooms)
    return not document.machine and not any(facts) and document.primary in (None, "healthy", "unknown")


def _facts(document: Explanation, main: Finding | None) -> Iterator[tuple[str, str]]:
    """A summary; the finding itself follows with its evidence."""
    if main is not None and main.action:
        yield "do", clean(main.action)
    if main is not None:
        yield from largest_holder_fact(document.memory_profiles)
    if document.machine is not None and document.machine.driver is not None:
        driver = document.machine.driver
        yield "driver", f"{clean(driver.version)}, CUDA {clean(driver.cuda_version)}"
    if document.device_map:
        mapped = []
        for entry in document.device_map[:8]:
            amount = f" {size(entry.granted_bytes)}" if entry.granted_bytes is not None else ""
            mapped.append(f"{clean(entry.framework_device).removeprefix('/device:')} {clean(entry.name)}{amount}")
        yield "GPUs", ", ".join(mapped)
    if document.ooms:
        more = and_more(len(document.ooms) - 2)
        refused = [
            f"{size(oom.requested_bytes)} refused" + (f" on {clean(oom.device)}" if oom.device else "")
            for oom in document.ooms[:2]
        ]
        yield "OOM", "; ".join(refused) + more
    total = sum(placement.count for placement in document.placements)
    if total:
        on_gpu = sum(placement.count for placement in document.placements if is_gpu(placement.actual))
        yield "ops", f"{total:,} placed, {100 * on_gpu / total:.0f} % of them on a GPU"
