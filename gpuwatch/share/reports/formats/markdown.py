"""Markdown for issue trackers: tables, and logs folded away."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.json_codec import Document
from gpuwatch.share.reports import memory_over_time
from gpuwatch.share.reports.literal_commands import split_commands
from gpuwatch.share.reports.memory_over_time import timeline_text
from gpuwatch.share.reports.recorded_period_graphs import graph_lines
from gpuwatch.share.reports.report_by_document_kind import content_of
from gpuwatch.share.reports.report_elements import GLYPHS, Content, MemoryAreas, MemoryTimeline, PeriodGraphs, Table
from gpuwatch.share.reports.report_text import SIMULATED, sentence_case

# Everything that Markdown (GitHub's) gives a meaning inside a line, mentions and references included.
_SPECIAL = re.compile(r"([\\`*_\[\]#|~$])")
_FOLDED_TABLES = ("Environment", "Placements", "Machine and process")
_GRAPH_CHARS = 60
_LONG_TABLE_ROWS = 25
"""Rows of a table that is folded away."""
MAX_CHARS = 65_000
"""GitHub refuses comments of 65,536 characters; a few are left for text around it."""


@dataclass(frozen=True, slots=True)
class _Limits:
    """How much of a document is written: the first of :data:`_LIMITS` that fits."""

    parts: bool = True
    raw_lines: int = 200
    rows: int = 1000
    left_out: str = ""


_LIMITS = (
    _Limits(),
    _Limits(parts=False, left_out="the runs one by one"),
    _Limits(parts=False, raw_lines=30, rows=60, left_out="the runs one by one, lines and rows beyond the first"),
    _Limits(parts=False, raw_lines=12, rows=25, left_out="the runs one by one, lines and rows beyond the first"),
    _Limits(parts=False, raw_lines=0, rows=10, left_out="the runs one by one, the logs, rows beyond the first ten"),
)


def render(document: Document) -> str:
    """The document as Markdown, short enough for an issue tracker; it names what was left out."""
    content = content_of(document)
    rendered = ""
    for limits in _LIMITS:
        rendered = "\n".join(_document(content, 1, limits)) + "\n"
        if len(rendered) <= MAX_CHARS:
            return rendered
    # Still too long: cut between paragraphs, closing every block.
    shortened = rendered[: MAX_CHARS - 200].rpartition("\n\n")[0]
    open_blocks = shortened.count("<details>") - shortened.count("</details>")
    return shortened + "\n\n" + "</details>\n\n" * open_blocks + "_The rest does not fit in an issue._\n"


def _document(content: Content, level: int, limits: _Limits) -> Iterator[str]:
    yield from (f"{'#' * level} {_text(content.title)}", "")
    if content.simulated:
        yield from (f"> **{SIMULATED}.** {content.simulated}", "")
    if content.subtitle:
        yield from (_text(content.subtitle), "")
    reason = f" ({content.certainty})" if content.certainty else ""
    reason += f": {_text(content.reason)}" if content.reason else ""
    glyph = GLYPHS.get(content.state) or GLYPHS.get(content.verdict, "●")
    yield from (f"**{glyph} {_text(content.verdict)}**{reason}", "")
    if content.action:
        yield from (f"**{_text(content.action)}**" if content.code else f"**Do:** {_text(content.action)}", "")
    if content.code:
        yield from _fence(content.code)
    if content.evidence:
        yield from ("**Evidence:**", "")
        yield from (f"- {_code(line)}" for line in content.evidence)
        yield ""
    if content.action:  # the situation first, then other findings
        yield from _facts(content)
    yield from _findings(content.findings, level + 1)
    if not content.action:
        yield from _facts(content)
    for table in content.tables:
        yield from _table(table, level + 1, limits.rows)
    if content.log_tail:
        yield from _details("End of the log", _fence(content.log_tail))
    for name, lines in content.raw if limits.raw_lines else ():
        last_lines = lines[-limits.raw_lines :]
        yield from _details(f"{name}, {count_text(len(last_lines), 'line')}", _fence(last_lines))
    for part in content.parts if limits.parts else ():
        yield from _details(f"{part.title}: {part.verdict}", list(_document(part, level + 2, limits)))
    if level == 1:
        if limits.left_out:
            yield from (f"<sub>Omitted to fit in an issue: {limits.left_out}. HTML and JSON have everything.</sub>", "")
        yield f"<sub>{_text(content.footer)}</sub>"


def _facts(content: Content) -> Iterator[str]:
    if not content.facts:
        return
    if content.evidence:
        # A paragraph between two lists keeps them apart.
        yield from ("**In short:**", "")
    yield from (f"- **{_text(name)}:** {_text(value)}" for name, value in content.facts)
    yield ""


def _findings(findings: tuple[Finding, ...], level: int) -> Iterator[str]:
    problems = [finding for finding in findings if finding.id != "healthy"]
    if not problems:
        return
    yield from (f"{'#' * level} Findings", "")
    for finding in problems:
        likely = "" if finding.certainty == "fact" else " (likely)"
        glyph = "" if finding.severity == "info" else f"{GLYPHS[finding.severity]} "  # a list has its own bullets
        yield f"- {glyph}**{finding.severity}**{likely} `{finding.id}` {_text(finding.title)}"
        if finding.action:
            yield f"  - **Do:** {_text(finding.action)}"
        for line in finding.evidence[:6]:
            yield f"  - {_code(line)}"
    yield ""


def _table(table: Table, level: int, max_rows: int) -> Iterator[str]:
    body = list[str]()
    for chart in table.charts:
        if isinstance(chart, MemoryTimeline) and (words := timeline_text(chart.run)):
            body += [f"{_text(chart.title)}: {_text(words)}.", ""]
        elif isinstance(chart, PeriodGraphs):
            body += [*_fence(tuple(graph_lines(chart.device, _GRAPH_CHARS))), ""]
        elif isinstance(chart, MemoryAreas):
            body += _fence(tuple(memory_over_time.graph_lines(chart, _GRAPH_CHARS)))
    body += list(_rows(table, max_rows)) if table.rows else []
    if table.note:
        body += [_text(table.note), ""]
    if table.folded or table.title in _FOLDED_TABLES or len(table.rows) > _LONG_TABLE_ROWS:
        yield from _details(table.title, body)
        return
    yield from (f"{'#' * level} {_text(table.title)}", "")
    yield from body


def _rows(table: Table, max_rows: int) -> Iterator[str]:
    yield f"| {' | '.join(_text(sentence_case(head)) for head in table.heads)} |"
    yield f"|{'|'.join('---:' if head in table.right else '---' for head in table.heads)}|"
    for row in table.rows[:max_rows]:
        cells = " | ".join(_text(cell, bar="\\|") for cell in row)
        yield f"| {cells} |"
    yield ""
    if len(table.rows) > max_rows:
        yield from (f"… and {len(table.rows) - max_rows} more.", "")


def _details(title: str, body: list[str]) -> Iterator[str]:
    yield from (f"<details><summary>{html.escape(title, quote=False)}</summary>", "")
    yield from body
    yield from ("</details>", "")


def _fence(lines: tuple[str, ...]) -> list[str]:
    """A code block that no line inside can close."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *lines, fence, ""]


def _text(text: str, bar: str = "|") -> str:
    """Prose with its commands as code, unchanged; ``bar`` replaces bars, which end a table's cell even in code."""
    return "".join(_code(piece).replace("|", bar) if code else _prose(piece) for piece, code in split_commands(text))


def _prose(text: str) -> str:
    escaped = html.escape(text, quote=False)
    escaped = _SPECIAL.sub(r"\\\1", escaped)
    # Issue trackers would notify people and link issues.
    return escaped.replace("@", "&#64;").replace("://", ":&#8203;//")


def _code(text: str) -> str:
    """A code span that the text cannot leave."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    tick = "`" * (longest + 1)
    return f"{tick} {text} {tick}" if longest else f"`{text}`"
