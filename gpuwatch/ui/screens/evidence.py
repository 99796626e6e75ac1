"""Findings with their evidence and the action, and problems of the sources."""

from __future__ import annotations

from gpuwatch.formatting.text import printable
from gpuwatch.ui.screens.lines_modal import Lines
from gpuwatch.ui.view import View


def evidence(view: View) -> tuple[str, Lines]:
    """Title and lines: everything that is wrong, the most important first."""
    lines: Lines = []
    snapshot = view.snapshot
    for finding in view.wrong:
        bad = finding.severity == "error"
        lines.append([("✖ " if bad else "▲ ", "error" if bad else "warning"), (printable(finding.title), "strong")])
        device = snapshot.device(finding.device_uuid) if snapshot is not None else None
        where = f"GPU {device.index} · " if device is not None else ""
        process = f"process {finding.pid} · " if finding.pid is not None else ""
        lines.append([(f"  {where}{process}{finding.id} · {finding.certainty}", "dim")])
        for line in finding.evidence:
            lines.append([("  · ", "dim"), (printable(line), "text")])
        if finding.action:
            lines.append([("  → ", "accent"), (printable(finding.action), "text")])
        lines.append([])
    for problem in snapshot.problems if snapshot is not None else ():
        lines.append([("▲ ", "warning"), (printable(problem.detail), "strong")])
        lines.append([(f"  {problem.source} · {problem.reason}", "dim")])
        if problem.hint:
            lines.append([("  → ", "accent"), (printable(problem.hint), "text")])
        lines.append([])
    if not lines:
        lines = [[("● ", "ok"), ("Nothing wrong was found.", "text")]]
    return "Findings", lines
