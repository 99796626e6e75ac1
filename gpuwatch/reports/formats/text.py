"""Plain text for the terminal: aligned, without colour, at most ``width`` columns."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator

from rich.cells import cell_len, set_cell_size

from gpuwatch.model.codec import Document
from gpuwatch.model.findings import Finding
from gpuwatch.model.run import Run
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.reports.charts import Timeline, in_words
from gpuwatch.reports.content import GLYPHS, SIMULATED, Content, Table
from gpuwatch.reports.document import content_of

WIDTH = 100
_GAP = "  "
_LABEL = 13
# What the short story at the top already tells in full.
_TOLD = frozenset({"Memory", "Machine and process", "Environment", "Throughput", "Placements", "Settings", "Time"})
_LEAST_COLUMN = 8
_LONGEST_WORD = 28
_LEAST_SENTENCE = 24


def render(document: Document, width: int = WIDTH, *, details: bool = True) -> str:
    """The document as text. Without ``details`` a run is its story, what went wrong and the findings."""
    content = content_of(document)
    lines = list(_head(content, width))
    findings = _findings(content.findings, width)
    told: frozenset[str] = _TOLD if isinstance(document, Run) and not details else frozenset()
    if isinstance(document, Snapshot):
        # The table is what one looks for; versions and host stand under it.
        for table in content.tables:
            lines += ["", *_table(table, width)]
        lines += ["", *_facts(content, width), *findings]
    else:
        lines += list(_action(content, width))
        lines += ["", *_facts(content, width)] if content.facts else []
        # The cause and what to do come before the long tables.
        lines += findings
        for table in content.tables:
            if table.title not in told:
                lines += ["", *_table(table, width)]
    if details and content.log_tail:
        lines += ["", "Log, last lines", *(f"  {line}" for line in content.log_tail[-20:])]
    for name, raw in content.raw if details else ():
        lines += ["", name, *(part for line in raw for part in _raw(line, width))]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def tables(content: Content, width: int = WIDTH) -> str:
    """The tables of a content alone, one under the other."""
    lines = [line for table in content.tables for line in ("", *_table(table, width))]
    return "\n".join(line.rstrip() for line in [*_head(content, width), *lines]) + "\n"


def _head(content: Content, width: int) -> Iterator[str]:
    if content.simulated:
        yield f"[{SIMULATED}] {content.simulated}"
    yield f"{content.title}   {content.subtitle}" if content.subtitle else content.title
    glyph = GLYPHS.get(content.state) or GLYPHS.get(content.verdict, "●")
    certainty = f" ({content.certainty})" if content.certainty else ""
    verdict = f"{glyph} {content.verdict}{certainty}" + (f": {content.reason}" if content.reason else "")
    yield from textwrap.wrap(verdict, max(width, 40), subsequent_indent="  ", break_on_hyphens=False)


def _action(content: Content, width: int) -> Iterator[str]:
    room = max(width, 40)
    if content.action:
        yield from textwrap.wrap(content.action, room, initial_indent="→ ", subsequent_indent="  ")
    for line in content.evidence:
        # Not at hyphens: somebody will search for what the log said.
        yield from textwrap.wrap(
            line,
            room,
            initial_indent="    ",
            subsequent_indent="      ",
            max_lines=2,
            placeholder=" …",
            break_on_hyphens=False,
        )


def _raw(line: str, width: int) -> list[str]:
    """A line as it was, folded where it is longer than the page."""
    return textwrap.wrap(
        line, max(width, 40), initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False
    ) or [""]


def _facts(content: Content, width: int) -> Iterator[str]:
    for name, value in content.facts:
        wrapped = textwrap.wrap(value, max(width - _LABEL - 2, 20), break_on_hyphens=False) or ["–"]
        yield f"  {name:<{_LABEL}}{wrapped[0]}"
        for line in wrapped[1:]:
            yield f"  {'':<{_LABEL}}{line}"


def _table(table: Table, width: int) -> Iterator[str]:
    table, left_out = _narrowed(table, width - 2)
    yield table.title
    for chart in table.charts:
        if isinstance(chart, Timeline) and (told := in_words(chart.run)):
            yield from textwrap.wrap(f"{chart.title}: {told}.", width, initial_indent="  ", subsequent_indent="  ")
    if not table.rows:
        yield f"  {table.note}"
        return
    widths = _widths(table, width - 2)
    under: list[str] = []
    if table.below is not None and widths[table.below] < _LEAST_SENTENCE:
        under = [row[table.below] for row in table.rows]
        table = _without(table, table.below)
        widths = _widths(table, width - 2)
    for number, row in enumerate((table.heads, *table.rows)):
        yield from _row(table, row, widths)
        if under and number and under[number - 1]:
            yield from textwrap.wrap(under[number - 1], max(width, 40), initial_indent="    ", subsequent_indent="    ")
    note = table.note
    if left_out:
        note += f" Not shown for want of width: {', '.join(left_out)}; a wider terminal and -o FILE have them."
    if note:
        yield from textwrap.wrap(note.strip(), max(width, 40), initial_indent="  ", subsequent_indent="  ")


def _widths(table: Table, room: int) -> list[int]:
    columns = range(len(table.heads))
    return _fitted([max(cell_len(row[i]) for row in (table.heads, *table.rows)) for i in columns], table, room)


def _row(table: Table, row: tuple[str, ...], widths: list[int]) -> Iterator[str]:
    cells = [
        [text] if table.one_line else _wrapped(text, size, table.lines) for text, size in zip(row, widths, strict=True)
    ]
    for line in range(max(len(cell) for cell in cells)):
        parts = [
            _cell(cell[line] if line < len(cell) else "", widths[i], right=i in table.right)
            for i, cell in enumerate(cells)
        ]
        yield "  " + _GAP.join(parts)


def _without(table: Table, *gone: int) -> Table:
    kept = [i for i in range(len(table.heads)) if i not in gone]
    return dataclasses.replace(
        table,
        heads=tuple(table.heads[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in table.rows),
        right=frozenset(kept.index(i) for i in table.right if i in kept),
        keep=frozenset(kept.index(i) for i in table.keep if i in kept),
        below=kept.index(table.below) if table.below in kept else None,
        optional=(),
    )


def _narrowed(table: Table, room: int) -> tuple[Table, list[str]]:
    """Without as many optional columns as it takes for words to stay whole; their headings beside it."""
    gone: list[int] = []
    for column in table.optional:
        kept = [i for i in range(len(table.heads)) if i not in gone]
        if sum(_comfortable(table, i) for i in kept) + len(_GAP) * (len(kept) - 1) <= room:
            break
        gone.append(column)
    if not gone:
        return table, []
    return _without(table, *gone), [table.heads[i] for i in sorted(gone)]


def _comfortable(table: Table, column: int) -> int:
    """Numbers need their width; text can be wrapped, down to its words."""
    if column in table.right or column in table.keep:
        return max(cell_len(row[column]) for row in (table.heads, *table.rows))
    return max(_least(table, column), _LEAST_COLUMN)


def _fitted(widths: list[int], table: Table, room: int) -> list[int]:
    """Widths that fit: the widest column of text gives way, columns of numbers never do."""
    widths = list(widths)
    text = [i for i in range(len(widths)) if i not in table.right and i not in table.keep]
    while text and sum(widths) + len(_GAP) * (len(widths) - 1) > room:
        # Words stay whole while any other column has room to give.
        roomy = [i for i in text if widths[i] > _least(table, i)] or text
        widest = max(roomy, key=lambda i: widths[i])
        if widths[widest] <= _LEAST_COLUMN:
            break
        widths[widest] -= 1
    return widths


def _least(table: Table, column: int) -> int:
    words = (word for row in (table.heads, *table.rows) for word in row[column].split())
    return min(max((cell_len(word) for word in words), default=0), _LONGEST_WORD)


def _wrapped(text: str, width: int, lines: int) -> list[str]:
    if cell_len(text) <= width:
        return [text]
    wrapped = textwrap.wrap(text, max(width, 1)) or [""]
    if lines and len(wrapped) > lines:
        last = wrapped[lines - 1]
        wrapped = [*wrapped[: lines - 1], last[: max(width - 1, 0)] + "…"]
    return wrapped


def _cell(text: str, width: int, *, right: bool) -> str:
    if cell_len(text) > width:
        return set_cell_size(text, max(width - 1, 0)) + "…"
    padding = " " * (width - cell_len(text))
    return padding + text if right else text + padding


def _findings(findings: tuple[Finding, ...], width: int) -> list[str]:
    telling = [found for found in findings if found.id != "healthy"]
    if not telling:
        return []
    lines = ["", "Findings"]
    for found in telling:
        likely = "" if found.certainty == "fact" else ", likely"
        title = f"{GLYPHS[found.severity]} {found.severity}{likely}  {found.id}  {found.title}"
        lines += textwrap.wrap(title, max(width, 40), initial_indent="  ", subsequent_indent="    ")
        for line in found.evidence[:6]:
            lines += textwrap.wrap(
                line,
                max(width, 40),
                initial_indent="      ",
                subsequent_indent="        ",
                max_lines=3,
                placeholder=" …",
            )
        if found.action:
            lines += textwrap.wrap(found.action, max(width, 40), initial_indent="    → ", subsequent_indent="      ")
    return lines
