"""Markdown that pastes into an issue tracker: tables, and the log folded away."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from gpuwatch.model.codec import Document
from gpuwatch.model.findings import Finding
from gpuwatch.reports.content import GLYPHS, SIMULATED, Content, Table
from gpuwatch.reports.document import content_of

# Everything that Markdown (GitHub's) gives a meaning inside a line, mentions and references included.
_SPECIAL = re.compile(r"([\\`*_\[\]#|~$])")
_FOLDED = ("Environment", "Placements", "Machine and process")


def render(document: Document) -> str:
    """The document as Markdown."""
    content = content_of(document)
    return "\n".join(_document(content, level=1)) + "\n"


def _document(content: Content, level: int) -> Iterator[str]:
    yield f"{'#' * level} {_text(content.title)}"
    yield ""
    if content.simulated:
        yield f"> **{SIMULATED}.** {content.simulated}"
        yield ""
    if content.subtitle:
        yield _text(content.subtitle)
        yield ""
    reason = f": {_text(content.reason)}" if content.reason else ""
    yield f"**{GLYPHS.get(content.verdict) or GLYPHS.get(content.state, '●')} {_text(content.verdict)}**{reason}"
    yield ""
    yield from _findings(content.findings, level + 1)
    if content.facts:
        yield from _rows(("", ""), content.facts, frozenset())
    for table in content.tables:
        yield from _table(table, level + 1)
    if content.log_tail:
        yield from _details("Log, last lines", _fence(content.log_tail))
    for part in content.parts:
        yield from _details(f"{part.title}: {part.verdict}", list(_document(part, level + 1)))
    if level == 1:
        yield f"<sub>{_text(content.footer)}</sub>"


def _findings(findings: tuple[Finding, ...], level: int) -> Iterator[str]:
    telling = [found for found in findings if found.id != "healthy"]
    if not telling:
        return
    yield f"{'#' * level} Findings"
    yield ""
    for found in telling:
        likely = "" if found.certainty == "fact" else " (likely)"
        yield f"- {GLYPHS[found.severity]} **{found.severity}**{likely} `{found.id}` {_text(found.title)}"
        if found.action:
            yield f"  - **Do:** {_text(found.action)}"
        for line in found.evidence[:6]:
            yield f"  - {_code(line)}"
    yield ""


def _table(table: Table, level: int) -> Iterator[str]:
    body = list(_rows(table.heads, table.rows, table.right))
    if table.note:
        body += [_text(table.note), ""]
    if table.title in _FOLDED:
        yield from _details(table.title, body)
        return
    yield f"{'#' * level} {_text(table.title)}"
    yield ""
    yield from body


def _rows(heads: tuple[str, ...], rows: tuple[tuple[str, ...], ...], right: frozenset[int]) -> Iterator[str]:
    yield f"| {' | '.join(_text(head) for head in heads)} |"
    yield f"|{'|'.join('---:' if index in right else '---' for index in range(len(heads)))}|"
    for row in rows:
        yield f"| {' | '.join(_text(cell) for cell in row)} |"
    yield ""


def _details(title: str, body: list[str]) -> Iterator[str]:
    yield f"<details><summary>{html.escape(title)}</summary>"
    yield ""
    yield from body
    yield "</details>"
    yield ""


def _fence(lines: tuple[str, ...]) -> list[str]:
    """A code block that no line inside can close."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *lines, fence, ""]


def _text(text: str) -> str:
    escaped = html.escape(text, quote=False)
    escaped = _SPECIAL.sub(r"\\\1", escaped)
    # An issue tracker would notify people and link other issues.
    return escaped.replace("@", "&#64;").replace("://", ":&#8203;//")


def _code(text: str) -> str:
    """A code span that the text cannot leave."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    tick = "`" * (longest + 1)
    return f"{tick} {text} {tick}" if longest else f"`{text}`"
