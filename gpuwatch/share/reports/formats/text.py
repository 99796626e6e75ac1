"""Plain text for terminals and mails: aligned, without color, with prose folded to ``width`` columns."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Iterator

from rich.cells import cell_len

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.json_codec import Document
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.share.reports.formats.fold_text import fold, paragraph, uuid_shortener
from gpuwatch.share.reports.formats.terminal_tables import natural_width, table_lines
from gpuwatch.share.reports.report_by_document_kind import content_of
from gpuwatch.share.reports.report_elements import GLYPHS, Content, MemoryAreas, MemoryTimeline, PeriodGraphs, Table
from gpuwatch.share.reports.report_text import SIMULATED

WIDTH = 100
"""Columns if the terminal does not report its own."""
FILE_WIDTH = 80
"""Columns of prose that mails, editors and issue trackers show without folding; tables take what they need."""
_MIN_WIDTH = 40
_BESIDE_GRAPH_COLUMNS, _MIN_GRAPH_COLUMNS, _MAX_GRAPH_COLUMNS = 60, 20, 60
"""Columns beside a graph in characters, and of itself."""
_LABEL_WIDTH = 14
_MAX_EVIDENCE_LINES = 4
"""Most lines of one piece of evidence: the end of a log line is often the telling part."""


def render(document: Document, width: int = FILE_WIDTH, *, details: bool = True) -> str:
    """The document as text; prose is no wider than ``width`` (at least 40).

    ``details`` is for files: tables are as wide as they need, and logs and parts follow. Without it, for terminals,
    tables are folded or cut to ``width``, and a run is its summary, failures and findings.
    """
    width = max(width, _MIN_WIDTH)
    content = content_of(document)
    shorten = _uuid_shortener_of(content)
    lines = list(_head(content, width))
    if isinstance(document, Snapshot) and document.devices:
        findings = _findings(content.findings, width)
        # The table comes first; versions and host are under it.
        for table in content.tables:
            lines += ["", *_table(table, width, shorten, elastic=details)]
        lines += ["", *_facts(content, width), *findings]
    else:
        lines += list(_body(content, width, shorten, details=details))
    if details:
        lines += list(_appendix(content, width, shorten))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _body(content: Content, width: int, shorten: Callable[[str], str], *, details: bool) -> Iterator[str]:
    """Action, summary, findings, tables: the cause comes before long parts."""
    yield from _action(content, width)
    if content.facts:
        yield ""
        yield from _facts(content, width)
    yield from _findings(content.findings, width)
    for table in content.tables:
        if details or not (table.folded or table.only_in_files):
            yield ""
            yield from _table(table, width, shorten, elastic=details)


def _appendix(content: Content, width: int, shorten: Callable[[str], str]) -> Iterator[str]:
    """What only files have: logs, documents inside this one, and the footer."""
    if content.log_tail:
        yield from ("", "End of the log")
        for line in content.log_tail[-20:]:
            yield from _raw(line, width)
    for name, raw in content.raw:
        yield from ("", name)
        for line in raw:
            yield from _raw(line, width)
    for part in content.parts:
        yield from ("", "=" * width, *paragraph(f"Details of {part.title}", width), "")
        yield from _head(part, width)
        yield from _body(part, width, shorten, details=True)
    if content.raw or content.parts:
        yield from ("", "=" * width, *paragraph(content.footer, width))


def render_tables(content: Content, width: int = WIDTH) -> str:
    """Title and tables of a content, for a terminal."""
    width = max(width, _MIN_WIDTH)
    shorten = _uuid_shortener_of(content)
    lines = [line for table in content.tables for line in ("", *_table(table, width, shorten))]
    return "\n".join(line.rstrip() for line in [*_head(content, width), *lines]) + "\n"


def _head(content: Content, width: int) -> Iterator[str]:
    if content.simulated:
        yield from paragraph(f"[{SIMULATED}] {content.simulated}", width, rest="  ")
    *title_lines, title = paragraph(content.title, width, rest="  ")
    yield from title_lines
    title_and_subtitle = f"{title}   {content.subtitle}" if content.subtitle else title
    if cell_len(title_and_subtitle) <= width:
        yield title_and_subtitle
    else:
        yield title
        yield from paragraph(content.subtitle, width, "  ", "  ")
    glyph = GLYPHS.get(content.state) or GLYPHS.get(content.verdict, "●")
    certainty = f" ({content.certainty})" if content.certainty else ""
    verdict = f"{glyph} {content.verdict}{certainty}" + (f": {content.reason}" if content.reason else "")
    yield from paragraph(verdict, width, rest="  ")


def _action(content: Content, width: int) -> Iterator[str]:
    if content.action:
        yield from paragraph(content.action, width, "→ ", "  ")
    yield from (f"    {line}" for line in content.code)
    for line in content.evidence:
        yield from paragraph(line, width, "    ", "      ", most=_MAX_EVIDENCE_LINES)


def _raw(line: str, width: int) -> list[str]:
    """A verbatim line, folded if it is too long; lines of drawn tables (nvidia-smi) stay whole."""
    if line[:1] in ("|", "+") and len(line) <= WIDTH:
        return [f"  {line}"]
    return textwrap.wrap(line, width, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False) or [""]


def _facts(content: Content, width: int) -> Iterator[str]:
    for name, value in content.facts:
        first, *more = fold(value, width - _LABEL_WIDTH - 2)
        yield f"  {name:<{_LABEL_WIDTH}}{first or '–'}"
        for line in more:
            yield f"  {'':<{_LABEL_WIDTH}}{line}"


def _table(table: Table, width: int, shorten: Callable[[str], str], *, elastic: bool = False) -> Iterator[str]:
    yield table.title
    if table.charts:
        yield from _charts(table, width)
    if table.rows and not elastic:
        yield from table_lines(table, width, shorten)
    else:
        if table.rows:
            # A file has the width that its table needs; prose keeps one that is easy to read.
            table_width = max(width, natural_width(table))
            yield from table_lines(dataclasses.replace(table, note=""), table_width, shorten, elastic=True)
        if table.note:
            yield from paragraph(table.note, width, "  ", "  ")
    if table.charts:
        yield from _memory_graphs(table, width)


def _charts(table: Table, width: int) -> Iterator[str]:
    from gpuwatch.share.reports.memory_over_time import timeline_text
    from gpuwatch.share.reports.recorded_period_graphs import graph_lines

    for chart in table.charts:
        if isinstance(chart, PeriodGraphs):
            room = max(width - _BESIDE_GRAPH_COLUMNS, _MIN_GRAPH_COLUMNS)
            yield from (f"  {line}" for line in graph_lines(chart.device, min(room, _MAX_GRAPH_COLUMNS)))
        if isinstance(chart, MemoryTimeline) and (words := timeline_text(chart.run)):
            yield from paragraph(f"{chart.title}: {words}.", width, "  ", "  ")


def _memory_graphs(table: Table, width: int) -> Iterator[str]:
    from gpuwatch.share.reports import memory_over_time

    for chart in table.charts:
        if isinstance(chart, MemoryAreas) and (lines := list(memory_over_time.graph_lines(chart, width - 4))):
            yield ""
            head = f"{chart.title}, in the order of allocations; each line has its own scale:"
            yield from paragraph(head, width, "  ", "  ")
            yield from (f"    {line}" for line in lines)


def _uuid_shortener_of(content: Content) -> Callable[[str], str]:
    return uuid_shortener(cell for table in content.tables for row in table.rows for cell in row)


def _findings(findings: tuple[Finding, ...], width: int) -> list[str]:
    problems = [finding for finding in findings if finding.id != "healthy"]
    if not problems:
        return []
    lines = ["", "Findings"]
    for finding in problems:
        likely = "" if finding.certainty == "fact" else ", likely"
        title = f"{GLYPHS[finding.severity]} {finding.severity}{likely}  {finding.id}  {finding.title}"
        lines += paragraph(title, width, "  ", "    ")
        for line in finding.evidence[:6]:
            lines += paragraph(line, width, "      ", "        ", most=_MAX_EVIDENCE_LINES)
        if finding.action:
            lines += paragraph(finding.action, width, "    → ", "      ")
    return lines
