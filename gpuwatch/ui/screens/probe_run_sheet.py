"""Sheets of a probe: a run (verdict, findings, requested and granted devices, end of its log); settings as code."""

from __future__ import annotations

from gpuwatch.core.formatting.safe_text import printable
from gpuwatch.core.masking.mask_secrets import masked
from gpuwatch.core.model.run import Run
from gpuwatch.share.reports.report_elements import GLYPHS, Content, Table
from gpuwatch.share.reports.run_report import run_content
from gpuwatch.ui.details.finding_lines import entry_lines
from gpuwatch.ui.drawing.text_width import align_left, align_right, width_of
from gpuwatch.ui.drawing.wrapping import Lines
from gpuwatch.ui.screens.sheet import LinesModal
from gpuwatch.ui.widgets.painted_pane import Span
from gpuwatch.ui.widgets.probe_table import STATE_INKS

_FIRST = ("Device map", "Settings", "Fallbacks", "Out of memory", "Errors")
_MAX_LOG_LINES = 60


def run_lines(run: Run, width: int) -> Lines:
    """The content of a report on this run in ``width`` cells, with secrets masked."""
    shown = masked(run)
    assert isinstance(shown, Run)
    content = run_content(shown)
    lines: Lines = [
        [
            (f"{GLYPHS[content.state]} {content.verdict}  ", STATE_INKS[content.state]),
            (content.reason, "text"),
        ]
    ]
    if content.simulated:
        lines.append([(" SIMULATED ", "badge-neutral"), (" " + content.simulated, "dim")])
    lines += [[], *[[(f"  {name:<14}", "dim"), (text, "text")] for name, text in content.facts]]
    for finding in shown.findings:
        if finding.id != "healthy":
            lines += [[], *entry_lines(finding, None)]
    tables = {table.title: table for table in content.tables}
    order = [name for name in _FIRST if name in tables] + [name for name in tables if name not in _FIRST]
    for name in order:
        lines += [[], *_table(tables[name], width)]
    lines += _log(content)
    return lines


def _table(table: Table, width: int) -> Lines:
    lines: Lines = [[(table.title, "title")]]
    sizes = [max(width_of(text) for text in column) for column in zip(table.heads, *table.rows, strict=True)]
    if 2 + sum(sizes) + 2 * len(sizes) <= width:
        rows = [(table.heads, "dim")] + [(row, "text") for row in table.rows]
        for row, ink in rows:
            cells = [
                (align_right if head in table.right else align_left)(text, size)
                for head, text, size in zip(table.heads, row, sizes, strict=True)
            ]
            lines.append([("  " + "  ".join(cells), ink)])
        return lines
    if len(table.heads) == 2:
        return lines + [[(f"  {align_left(name, sizes[0])}  ", "dim"), (text, "text")] for name, text in table.rows]
    for row in table.rows:
        cells = [f"{head} {text}" for head, text in zip(table.heads, row, strict=True) if text not in ("", "–")]
        lines.append([("  · ", "dim"), (" · ".join(cells), "text")])
    return lines


def _log(content: Content) -> Lines:
    if not content.log_tail:
        return []
    tail = content.log_tail[-_MAX_LOG_LINES:]
    head: list[Span] = [("End of the log", "title"), (f"  last {len(tail)} lines", "dim")]
    return [[], head, *[[("  ", "dim"), (line, "dim")] for line in tail]]


class RunModal(LinesModal[str]):
    """A run; ``e`` shows its settings as code, ``o`` writes a report, ``y`` copies the command that shows it."""

    def __init__(self, run: Run, width: int) -> None:
        title = f"{run.config} · {run.started_at:%Y-%m-%d %H:%M:%S}"
        keys = {"enter": None, "e": "code", "o": "report", "y": "command"}
        super().__init__(title, run_lines(run, width), keys=keys)
        self.sheet.styles.max_width = width + 6
        self.sheet.ending = "e as code  o report  y copy command  Esc closes"


class CodeModal(LinesModal[None]):
    """Source code with dim comments."""

    def __init__(self, title: str, source: str) -> None:
        super().__init__(
            f"{title} as code", [_coloured(line) for line in source.splitlines()], to_copy=source, keys={"e": None}
        )
        self.sheet.ending = "c copies  Esc closes"


def _coloured(line: str) -> list[tuple[str, str]]:
    code, mark, comment = line.partition("#")
    indent = len(line) - len(line.lstrip(" "))
    if mark and not code.strip():
        return [(line[:indent], "dim"), (printable(mark + comment), "dim")]
    return [(line[:indent], "text"), (printable(line[indent:]), "accent" if "os.environ" in line else "text")]
