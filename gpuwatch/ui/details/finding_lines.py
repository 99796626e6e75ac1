"""Findings with evidence and action, source problems, and the page of a cause, as lines. Pure."""

from __future__ import annotations

import re

from gpuwatch.core.formatting.grouped_findings import grouped_findings
from gpuwatch.core.formatting.path_text import file_url
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Problem, Snapshot
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.diagnosis.conditions.gpu_faults import unreadable_metrics
from gpuwatch.explain.diagnosis.reference.cause_pages import page
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.glyphs import FINDING_MARKS
from gpuwatch.ui.drawing.styled_lines import Span, SpanLines, wrap_lines
from gpuwatch.ui.drawing.text_styles import link_style
from gpuwatch.ui.panes.verdict import notable_notes

Entry = Finding | Problem


def finding_mark(finding: Finding) -> tuple[str, str]:
    """Glyph and style of a finding; past and healthy ones have their own."""
    if finding.until is not None:
        return "○", "dim"
    return ("●", "ok") if finding.id == "healthy" else FINDING_MARKS[finding.severity]


def finding_times(finding: Finding) -> str:
    """``since 10:02:31``, ``at least`` if it may be older, or its start and end; empty if that is unknown."""
    if finding.since is None:
        return ""
    begun = finding.since.astimezone().strftime("%H:%M:%S")
    earlier = bool(finding.may_be_older)
    if finding.until is None:
        return f"{'at least ' * earlier}since {begun}"
    return f"past: {begun}{' or earlier' * earlier} to {finding.until.astimezone():%H:%M:%S}"


def cause_of(entry: Entry | None) -> str:
    """The id of the cause page of a finding; empty if there is none."""
    return entry.id if isinstance(entry, Finding) and entry.id not in ("healthy", "unknown") else ""


def id_and_certainty(finding: Finding) -> str:
    """Its cause id and certainty; only the certainty if the cause is unknown."""
    return finding.certainty if finding.id == "unknown" else f"{finding.id} · {finding.certainty}"


def action_of(entry: Entry | None) -> str:
    """The action of a finding, or the hint of a source problem."""
    return "" if entry is None else entry.action if isinstance(entry, Finding) else entry.hint


def entry_lines(entry: Entry, snapshot: Snapshot | None) -> SpanLines:
    """A finding with its evidence and action, or a source that could not be read, and what to do."""
    action = action_of(entry)
    acted: SpanLines = [[("  → ", "accent"), (printable(action), "text")]] if action else []
    if isinstance(entry, Problem):
        lines: SpanLines = [[("▲ ", "warning"), (printable(entry.detail), "strong")]]
        return [*lines, [(f"  {entry.source} · {entry.reason}", "dim")], *acted]
    glyph, style = finding_mark(entry)
    device = snapshot.device(entry.device_uuid) if snapshot is not None else None
    where = f"GPU {device.index} · " if device is not None else ""
    process = f"process {entry.pid} · " if entry.pid is not None else ""
    in_evidence = entry.until is None and any("since " in line for line in entry.evidence)
    moment = f" · {finding_times(entry)}" if entry.since is not None and not in_evidence else ""
    cause = cause_of(entry)
    named: list[Span] = [(cause, cause_page_style(cause)), (f" · {entry.certainty}{moment}", "dim")] if cause else []
    return [
        [(f"{glyph} ", style), (printable(entry.title), "strong")],
        [(f"  {where}{process}", "dim"), *(named or [(f"{id_and_certainty(entry)}{moment}", "dim")])],
        *([("  · ", "dim"), (printable(line), "text")] for line in entry.evidence),
        *acted,
    ]


def cause_page_style(cause: str) -> str:
    """The style of a cause id: a link to its page."""
    from gpuwatch.explain.diagnosis.reference.cause_pages import page_path

    page = page_path(cause)
    return link_style(file_url(page), "dim") if page is not None else "dim"


def all_finding_lines(view: View) -> SpanLines:
    """All findings and source problems, most important first."""
    lines: SpanLines = []
    snapshot = view.snapshot
    held = [finding for finding in view.findings if finding.id == "idle.memory-held" and finding.until is None]
    shown = dict.fromkeys((*view.errors_and_warnings, *notable_notes(view.findings), *held))
    for finding in grouped_findings(shown, view.devices):
        lines += [*entry_lines(finding, snapshot), []]
    found = {finding.id for finding in view.errors_and_warnings}
    for problem in snapshot.problems if snapshot is not None else ():
        if problem.reason not in found:
            lines += [*entry_lines(problem, snapshot), []]
    if not lines:
        well = (finding for finding in view.findings if finding.id == "healthy" and finding.until is None)
        healthy = next(well, None)
        unread = snapshot is not None and any(map(unreadable_metrics, snapshot.devices))
        if healthy is None and unread:
            return [[("◌ ", "dim"), ("Not judged: of the GPUs too little can be read.", "dim")]]
        lines = [[("● ", "ok"), ("No problems found.", "text")]]
        lines += [[("  · ", "dim"), (line, "text")] for line in (healthy.evidence if healthy is not None else ())]
    return lines


_RULE = re.compile(r"[|\-: ]+")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


def page_lines(text: str) -> SpanLines:
    """Markdown as lines, with styles for headings, code, tables and bullets; paragraphs are joined."""
    lines: SpanLines = []
    code = goes_on = False
    for raw in text.splitlines():
        fence = raw.startswith("```")
        if fence:
            code = not code
        elif code:
            lines.append([("    ", "text"), (raw, "accent")])
        elif raw.startswith("#"):
            lines.append([(_plain(raw.lstrip("# ")), "strong")])
        elif raw.startswith("|"):
            if not _RULE.fullmatch(raw):
                lines.append([("    ", "text"), (_plain(raw.strip("| ")).replace(" | ", "  ·  "), "text")])
        elif raw.startswith("- "):
            lines.append([("  · ", "dim"), (_plain(raw[2:]), "text")])
        elif goes_on and raw.strip():
            *before, (words, style) = lines[-1]
            lines[-1] = [*before, (f"{words} {_plain(raw.strip())}", style)]
        else:
            lines.append([(_plain(raw), "text")] if raw.strip() else [])
        goes_on = bool(raw.strip()) and not (fence or code or raw.startswith(("#", "|")))
    return lines


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text).replace("`", "").replace("**", "")


def cause_head(cause: str) -> list[tuple[str, str]]:
    """The title above a cause page, with the command that prints it."""
    return [("Cause page", "title"), (f"  gpuwatch cause {cause}", "dim")]


def folded_page(cause: str, room: int, *, headed: bool = True) -> SpanLines:
    """The page of a cause in ``room`` cells; ``headed``: with its heading, which is the cause's id."""
    text = page(cause)
    return wrap_lines(page_lines(text if headed else text.partition("\n\n")[2]), room)
