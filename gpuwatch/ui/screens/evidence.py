"""Findings with their evidence and the action, and problems of the sources."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from gpuwatch.formatting.text import printable
from gpuwatch.model.findings import Finding
from gpuwatch.model.snapshot import Problem, Snapshot
from gpuwatch.ui.screens.lines_modal import Lines, LinesModal
from gpuwatch.ui.view import View

MARKS = {"error": ("✖", "error"), "warning": ("▲", "warning"), "info": ("•", "dim")}
"""Glyph and ink of a severity."""


def lines_of(finding: Finding, snapshot: Snapshot | None) -> Lines:
    """One finding with its evidence and what to do."""
    glyph, ink = MARKS[finding.severity]
    lines: Lines = [[(f"{glyph} ", ink), (printable(finding.title), "strong")]]
    device = snapshot.device(finding.device_uuid) if snapshot is not None else None
    where = f"GPU {device.index} · " if device is not None else ""
    process = f"process {finding.pid} · " if finding.pid is not None else ""
    lines.append([(f"  {where}{process}{finding.id} · {finding.certainty}", "dim")])
    for line in finding.evidence:
        lines.append([("  · ", "dim"), (printable(line), "text")])
    if finding.action:
        lines.append([("  → ", "accent"), (printable(finding.action), "text")])
    return lines


def lines_of_problem(problem: Problem) -> Lines:
    """Something that could not be read, and what helps."""
    lines: Lines = [[("▲ ", "warning"), (printable(problem.detail), "strong")]]
    lines.append([(f"  {problem.source} · {problem.reason}", "dim")])
    if problem.hint:
        lines.append([("  → ", "accent"), (printable(problem.hint), "text")])
    return lines


def evidence(view: View) -> tuple[str, Lines]:
    """Title and lines: everything that is wrong, the most important first."""
    lines: Lines = []
    snapshot = view.snapshot
    for finding in view.wrong:
        lines += [*lines_of(finding, snapshot), []]
    for problem in snapshot.problems if snapshot is not None else ():
        lines += [*lines_of_problem(problem), []]
    if not lines:
        lines = [[("● ", "ok"), ("Nothing wrong was found.", "text")]]
    return "Findings", lines


def first_action(view: View) -> str:
    """What to do about the most important finding; empty when nothing can be done."""
    return view.wrong[0].action if view.wrong else ""


class EvidenceModal(LinesModal[None]):
    """The findings; ``c`` copies what to do."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("c", "copy", "copy", show=False)]

    def __init__(self, title: str, lines: Lines, *, action: str) -> None:
        super().__init__(title, lines)
        self._action = action
        if action:
            self.sheet.ending = "c copies the action  Esc closes"

    def action_copy(self) -> None:
        """To the terminal's clipboard."""
        if self._action:
            self.app.copy_to_clipboard(self._action)
            self.sheet.ending = "copied  Esc closes"
            self.sheet.redraw()
