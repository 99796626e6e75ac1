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


HEALTHY = ("●", "ok")
PAST = ("○", "dim")


def mark(finding: Finding) -> tuple[str, str]:
    """Glyph and ink: of what is past and of what is well, their own."""
    if finding.until is not None:
        return PAST
    return HEALTHY if finding.id == "healthy" else MARKS[finding.severity]


def when(finding: Finding) -> str:
    """``since 10:02:31``, or from when to when it was; empty where nobody watched."""
    if finding.since is None:
        return ""
    begun = finding.since.astimezone().strftime("%H:%M:%S")
    if finding.until is None:
        return f"since {begun}"
    return f"past: {begun} to {finding.until.astimezone():%H:%M:%S}"


def cause_of(finding: Finding) -> str:
    """The cause that has a page about what is wrong; empty for what has none."""
    return "" if finding.id in ("healthy", "unknown") else finding.id


def judged(finding: Finding) -> str:
    """Its cause, and how sure that is; a cause that no table has has no name."""
    return finding.certainty if finding.id == "unknown" else f"{finding.id} · {finding.certainty}"


def lines_of(finding: Finding, snapshot: Snapshot | None) -> Lines:
    """One finding with its evidence and what to do."""
    glyph, ink = mark(finding)
    lines: Lines = [[(f"{glyph} ", ink), (printable(finding.title), "strong")]]
    device = snapshot.device(finding.device_uuid) if snapshot is not None else None
    where = f"GPU {device.index} · " if device is not None else ""
    process = f"process {finding.pid} · " if finding.pid is not None else ""
    told = finding.until is None and any("since " in line for line in finding.evidence)
    moment = f" · {when(finding)}" if finding.since is not None and not told else ""
    lines.append([(f"  {where}{process}{judged(finding)}{moment}", "dim")])
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
    told = {finding.id for finding in view.wrong}
    for problem in snapshot.problems if snapshot is not None else ():
        if problem.reason in told:
            continue
        lines += [*lines_of_problem(problem), []]
    if not lines:
        healthy = next((one for one in view.findings if one.id == "healthy" and one.until is None), None)
        lines = [[("● ", "ok"), ("Nothing wrong was found.", "text")]]
        lines += [[("  · ", "dim"), (line, "text")] for line in (healthy.evidence if healthy is not None else ())]
    return "Findings", lines


def first_cause(view: View) -> str:
    """Cause id of the most important finding; empty where nothing is wrong."""
    return cause_of(view.wrong[0]) if view.wrong else ""


def first_action(view: View) -> str:
    """What to do about the most important finding; empty when nothing can be done."""
    return view.wrong[0].action if view.wrong else ""


class EvidenceModal(LinesModal[None]):
    """The findings; ``c`` copies what to do, ``p`` opens the page about the cause."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "copy", "copy", show=False),
        Binding("p", "page", "page", show=False),
    ]

    def __init__(self, title: str, lines: Lines, *, action: str, cause: str = "") -> None:
        super().__init__(title, lines)
        self._action = action
        self._cause = cause
        keys = [*(["c copies the action"] if action else []), *(["p opens the page"] if cause else [])]
        self.sheet.ending = "  ".join([*keys, "Esc closes"])

    def action_page(self) -> None:
        """All that gpuwatch knows about the cause."""
        if self._cause:
            from gpuwatch.ui.screens.cause_sheet import CauseSheet

            self.app.push_screen(CauseSheet(self._cause))

    def action_copy(self) -> None:
        """To the terminal's clipboard."""
        if self._action:
            self.app.copy_to_clipboard(self._action)
            self.sheet.ending = "copied  Esc closes"
            self.sheet.redraw()
