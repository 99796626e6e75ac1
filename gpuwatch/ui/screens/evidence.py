"""Findings with their evidence and the action, and problems of the sources."""

from __future__ import annotations

import textwrap

from gpuwatch.formatting.text import printable
from gpuwatch.ui.screens.lines_modal import Lines
from gpuwatch.ui.view import View
from gpuwatch.ui.widgets.paint import Span

_WIDTH = 94


def _wrapped(first: Span, text: str, ink: str) -> Lines:
    indent = len(first[0])
    lines: Lines = []
    for number, part in enumerate(textwrap.wrap(printable(text), _WIDTH - indent) or [""]):
        lines.append([first if not number else (" " * indent, "text"), (part, ink)])
    return lines


def evidence(view: View) -> tuple[str, Lines]:
    """Title and lines: everything that is wrong, the most important first."""
    lines: Lines = []
    snapshot = view.snapshot
    for finding in view.wrong:
        bad = finding.severity == "error"
        lines += _wrapped(("✖ " if bad else "▲ ", "error" if bad else "warning"), finding.title, "strong")
        device = snapshot.device(finding.device_uuid) if snapshot is not None else None
        where = f"GPU {device.index} · " if device is not None else ""
        process = f"process {finding.pid} · " if finding.pid is not None else ""
        lines.append([(f"  {where}{process}{finding.id} · {finding.certainty}", "dim")])
        for line in finding.evidence:
            lines += _wrapped(("  · ", "dim"), line, "text")
        if finding.action:
            lines += _wrapped(("  → ", "accent"), finding.action, "text")
        lines.append([])
    for problem in snapshot.problems if snapshot is not None else ():
        lines += _wrapped(("▲ ", "warning"), problem.detail, "strong")
        lines.append([(f"  {problem.source} · {problem.reason}", "dim")])
        if problem.hint:
            lines += _wrapped(("  → ", "accent"), problem.hint, "text")
        lines.append([])
    if not lines:
        lines = [[("● ", "ok"), ("Nothing wrong was found.", "text")]]
    return "Findings", lines
