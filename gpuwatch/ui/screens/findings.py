"""The Findings tab: all findings, and the evidence of the selected one; sheets of evidence and of a cause page."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.containers import Horizontal, Vertical

from gpuwatch.core.formatting.grouped_findings import grouped_findings
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Problem
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.diagnosis.reference.cause_pages import page
from gpuwatch.session.view import View
from gpuwatch.ui.details.finding_lines import (
    Entry,
    action_of,
    cause_head,
    cause_of,
    cause_page_style,
    entry_lines,
    finding_mark,
    finding_times,
    folded_page,
    id_and_certainty,
    page_lines,
)
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Line, SpanLines, wrap_lines
from gpuwatch.ui.drawing.text_width import cut_to_width, width_of
from gpuwatch.ui.panes.verdict import verdict
from gpuwatch.ui.screens.filterable_tab import FilterableScreen
from gpuwatch.ui.screens.sheet_bases import LinesSheet, sheet_bindings
from gpuwatch.ui.settings.actions import bindings
from gpuwatch.ui.tables.filter_language import WordFilter
from gpuwatch.ui.widgets.scroll_list import NO_MATCH, WAITING, ItemList, TextPane

_FRAMED_ROWS = 20
"""Rows of a terminal from which list and evidence have frames, and the page of the cause has room."""
_MIN_TITLE_CELLS = 30
"""Minimum cells of a title beside the text at its right."""


def entries_of(view: View) -> list[Entry]:
    """Healthy, or errors and warnings; then what sources could not do, notes, and past findings: equal ones as one."""
    now = [finding for finding in view.findings if finding.until is None]
    healthy = [finding for finding in now if finding.id == "healthy"]
    notes = [finding for finding in now if finding.severity == "info" and finding.id != "healthy"]
    wrong = grouped_findings(view.errors_and_warnings, view.devices)
    found_ids = {finding.id for finding in view.errors_and_warnings}
    source_problems = view.snapshot.problems if view.snapshot is not None else ()
    other_problems = [problem for problem in source_problems if problem.reason not in found_ids]
    past = [finding for finding in view.findings if finding.until is not None]
    return [*healthy, *wrong, *other_problems, *grouped_findings([*notes, *past], view.devices)]


class FindingList(ItemList[Entry]):
    """One line per entry."""

    BINDINGS = bindings("findings")

    _view: View | None = None
    _wanted: WordFilter | None = None

    def show(self, view: View, wanted: WordFilter | None = None) -> None:
        """Shows the entries that match a filter; the cursor stays with its finding."""
        entries = entries_of(view)
        self._view, self._wanted, self.total = view, wanted, len(entries)
        shown = entries if wanted is None else [entry for entry in entries if wanted(*_texts(entry, view))]
        self.set_items(shown, _entry_key, follow_first=True)

    def rebuild(self) -> None:
        view = self._view
        if view is None:
            return
        # Healthy, past and informational findings are not counted.
        problem_count = len(view.errors_and_warnings) + sum(isinstance(entry, Problem) for entry in self.items)
        self.note = f" {problem_count} wrong " if problem_count else ""
        empty_line = _empty_list_line(view) if self._wanted is None else NO_MATCH
        self.set_lines([self._line(entry, view) for entry in self.items] or [empty_line], stale=view.stale)

    def _line(self, entry: Entry, view: View) -> Line:
        builder = LineBuilder(self.inner_width)
        if isinstance(entry, Problem):
            return builder.add("  ").add("▲ ", "warning").add(printable(entry.detail)).line()
        glyph, style = finding_mark(entry)
        device = view.device(entry.device_uuid)
        past = entry.until is not None
        builder.add("  ").add(f"{glyph} ", style)
        named = f"GPU {device.index}" if device is not None else ""
        title = printable(entry.title)
        if entry.id == "healthy":
            current = [finding for finding in self.items if isinstance(finding, Finding) and finding.until is None]
            notes = sum(finding is not entry for finding in current)
            title += f"; {count_text(notes, 'note')} below" if notes else ""
        lead = f"{named}  " if named and named not in title else ""
        cause = _right_text(entry, lead + title, builder.cells_left)
        shown = cut_to_width(title, builder.cells_left - len(cause + lead))
        if named and not lead and named not in shown:  # a shortened title has lost it
            lead = f"{named}  "
            shown = cut_to_width(title, builder.cells_left - len(cause + lead))
        builder.add(lead, "dim" if past else "strong").add(shown, "dim" if past else "text")
        if builder.cells_left >= len(cause):
            builder.fill_to(builder.width - len(cause)).add_spans(_with_link(cause, entry))
        return builder.line()


def _with_link(tail: str, finding: Finding) -> list[tuple[str, str]]:
    """The text at the right, its cause id as a link to the page."""
    cause = cause_of(finding)
    before, link, after = tail.partition(cause) if cause else (tail, "", "")
    return [(before, "dim"), (link, cause_page_style(cause)), (after, "dim")] if link else [(tail, "dim")]


def _right_text(finding: Finding, title: str, room: int) -> str:
    """The text at the right: start, cause and certainty; for long titles the start alone, which outlives their end."""
    if finding.id == "healthy":
        tails = [finding.evidence[0] if finding.evidence else "", ""]
    elif finding.until is not None:
        past = finding_times(finding)
        tails = [f"{past} · {finding.id}" if cause_of(finding) else past, past]
    else:
        tails = [id_and_certainty(finding)]
        if finding.since is not None:
            begun = finding_times(finding)
            tails = [f"{begun} · {tails[0]}", f"{begun} · {cause_of(finding)}" if cause_of(finding) else "", begun]
    padded = [f"  {tail} " for tail in tails if tail]
    for tail in padded:
        if width_of(title) + len(tail) <= room:
            return tail
    return padded[-1] if padded and room > len(padded[-1]) + _MIN_TITLE_CELLS else ""


def _entry_key(entry: Entry) -> tuple[object, ...]:
    if isinstance(entry, Finding):
        return (entry.id, entry.device_uuid, entry.pid, entry.since, entry.until is None)
    return (entry.source, entry.reason)


def _texts(entry: Entry, view: View) -> list[str]:
    """What a filter looks at: all that is shown of it."""
    lines = entry_lines(entry, view.snapshot)
    return ["".join(text for text, _ in line) for line in lines]


def _empty_list_line(view: View) -> Line:
    if view.waiting:
        return WAITING
    words, style = verdict(view)
    if style not in ("ok", "dim") or not words:
        return Line((("  ◌ ", "dim"), ("not evaluated yet", "dim")))
    return Line((("  ● ", "ok"), ("No problems found.", "text")))


class FindingsScreen(FilterableScreen):
    """The list, and the evidence of the selected finding below, with the page of its cause below or beside it."""

    AUTO_FOCUS = "#finding-list"
    TAB = "findings"
    PANES: ClassVar[dict[str, str]] = {"finding-list": "findings"}

    def __init__(self) -> None:
        super().__init__()
        self.finding_list = FindingList("Findings", id="finding-list")
        self.evidence = TextPane("Evidence, and what to do", id="evidence")
        self.page = TextPane("Cause page", id="page")
        """The page of the selected finding's cause, beside it on a wide terminal."""
        self._page_of: tuple[str, int] = ("", 0)
        self._folded_page: SpanLines = []
        self.panes = (Horizontal(Vertical(self.finding_list, self.evidence, id="found"), self.page, id="body"),)

    def draw(self, view: View) -> None:
        """Draws the list, at most half the screen, and the evidence."""
        width, height = self.app.size
        self.page.display = self.wide
        self.page.styles.width = width - self._list_width if self.wide else 0
        framed = height >= _FRAMED_ROWS
        self.finding_list.framed = self.evidence.framed = framed
        self.evidence.headed = not framed
        self.finding_list.headed = not framed and self.filter is not None
        least, most = (4, height // 2 - 1) if framed else (1, height // 3)
        lines = max(len(entries_of(view)), 1) + (2 if framed else int(self.finding_list.headed))
        self.finding_list.styles.height = min(lines, max(most, least))
        self.finding_list.title = self.filter_title("Findings")
        self.finding_list.show(view, self.filter)
        self.draw_evidence()

    @property
    def filtered(self) -> FindingList:
        return self.finding_list

    def draw_evidence(self) -> None:
        """Draws the evidence of the entry under the cursor; without entries, what was checked."""
        view, entry = self.view, self.finding_list.item_under_cursor
        checked = self.filter is None if entry is None else isinstance(entry, Finding) and entry.id == "healthy"
        self.evidence.title = [("What was checked" if checked else "Evidence, and what to do", "title")]
        lines = entry_lines(entry, view.snapshot) if entry is not None else _checked_causes(view) if checked else []
        room = max(self._list_width - 4, 10)
        folded = wrap_lines(lines, room)
        if self.page.display:
            self._draw_page(entry)
        elif self.app.size.height >= _FRAMED_ROWS and isinstance(entry, Finding):
            folded += self._page_below(entry, room)
        self.evidence.set_text(folded, stale=view.stale)

    def _page_below(self, finding: Finding, room: int) -> SpanLines:
        """The page of a cause, as it follows the evidence on a narrower terminal."""
        cause = cause_of(finding)
        if cause not in CAUSES or cause == "healthy":
            return []
        if (cause, room) != self._page_of:
            self._page_of = (cause, room)
            self.evidence.top = 0
            self._folded_page = folded_page(cause, room, headed=False)
        return [[], cause_head(cause), [], *self._folded_page]

    @property
    def _list_width(self) -> int:
        """Cells of the list and the evidence."""
        width = self.app.size.width
        return (width + 1) // 2 if self.wide else width

    def _draw_page(self, entry: Entry | None) -> None:
        """The page of a cause; for a healthy machine, what was checked."""
        cause = entry.reason if isinstance(entry, Problem) else cause_of(entry)
        healthy = isinstance(entry, Finding) and entry.id == "healthy"
        room = self.app.size.width - self._list_width - 4
        if (f"{cause} {healthy}", room) == self._page_of:
            return  # it is long, and only depends on the cause
        self._page_of = (f"{cause} {healthy}", room)
        if cause in CAUSES:
            self.page.title, folded = cause_head(cause), folded_page(cause, room)
        elif healthy:
            self.page.title = [("What is looked for", "title")]
            folded = wrap_lines(_checked_causes(self.view), room)
        else:
            self.page.title = [("Cause page", "title")]
            folded = [[("none: the cause is not known", "dim")]] if entry is not None else []
        self.page.top = 0
        self.page.set_text(folded)

    def action_move(self, where: str) -> None:
        self.finding_list.move(where)

    def on_item_list_cursor_moved(self) -> None:
        self.draw_evidence()
        self.show_keys()

    def titles(self) -> dict[str, str]:
        entry = self.finding_list.item_under_cursor
        needs = {"copy_action": action_of(entry), "open_page": cause_of(entry), "open_finding": entry}
        return super().titles() | {action: "" for action, value in needs.items() if not value}

    def action_open_finding(self) -> None:
        entry = self.finding_list.item_under_cursor
        if entry is None:
            return
        shown = entry

        def read() -> tuple[SpanLines, Entry]:
            nonlocal shown  # once it is gone, what it said last
            entries = entries_of(self.view)
            shown = next((other for other in entries if _entry_key(other)[:4] == _entry_key(shown)[:4]), shown)
            return entry_lines(shown, self.view.snapshot), shown

        self.app.push_screen(EvidenceSheet("Finding", read))

    def command(self) -> list[str]:
        """``cause`` with the page of the finding; without one, all causes."""
        cause = cause_of(self.finding_list.item_under_cursor)
        return ["cause", cause] if cause else ["cause"]

    def action_open_page(self) -> None:
        if cause := cause_of(self.finding_list.item_under_cursor):
            self.app.push_screen(CauseSheet(cause))

    def action_copy_action(self) -> None:
        if action := action_of(self.finding_list.item_under_cursor):
            self.app.copy_to_clipboard(action)
            self.evidence.title = [("Evidence, and what to do", "title"), (" copied", "ok")]
            self.evidence.redraw()


def _checked_causes(view: View) -> SpanLines:
    if view.waiting:
        return []
    causes = [text for cause, text in CAUSES.items() if cause not in ("healthy", "unknown")]
    lines: SpanLines = [[(f"None of these {len(causes)} causes was found in what could be read:", "text")], []]
    return lines + [[("· ", "dim"), (text, "dim")] for text in causes]


class CauseSheet(LinesSheet[None]):
    """What ``gpuwatch cause ID`` prints."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"gpuwatch cause {cause}", page_lines(page(cause)))


class EvidenceSheet(LinesSheet[None]):
    """Findings with evidence, as they are now; ``c`` copies the action, ``p`` opens the cause page."""

    BINDINGS = sheet_bindings({"p": "page", "f": "close"})

    def __init__(self, title: str, read: Callable[[], tuple[SpanLines, Entry | None]]) -> None:
        """``read``: the lines, and the entry whose action and cause page the keys are for; asked once a second."""
        lines, entry = read()
        super().__init__(title, lines)
        self._read = read
        self._take_entry(entry)

    def on_mount(self) -> None:
        """What it says changes while it is read: times, values, new findings."""
        self.set_interval(1.0, self._refresh_entry)

    def _refresh_entry(self) -> None:
        lines, entry = self._read()
        if lines != self.pane.content:
            self._take_entry(entry)
            self.pane.replace(lines)

    def _take_entry(self, entry: Entry | None) -> None:
        self._to_copy, self._cause = action_of(entry), cause_of(entry)
        keys = [*(["c copies the action"] if self._to_copy else []), *(["p cause page"] if self._cause else [])]
        self.pane.ending = "  ".join([*keys, "Esc closes"])

    def action_page(self) -> None:
        if self._cause:
            self.app.push_screen(CauseSheet(self._cause))
