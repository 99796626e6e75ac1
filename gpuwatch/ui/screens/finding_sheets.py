"""Sheets of findings: their evidence, and the page of a cause."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType

from gpuwatch.explain.diagnosis.reference.cause_pages import page
from gpuwatch.ui.details.finding_lines import Entry, action_of, cause_of
from gpuwatch.ui.drawing.wrapping import SpanLines, wrap_line
from gpuwatch.ui.screens.sheet import LinesModal

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
    lines = page_lines(text if headed else text.partition("\n\n")[2])
    return [part for line in lines for part in wrap_line(line, room)]


class CauseSheet(LinesModal[None]):
    """What ``gpuwatch cause ID`` prints."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"gpuwatch cause {cause}", page_lines(page(cause)))


class EvidenceModal(LinesModal[None]):
    """Findings with evidence, as they are now; ``c`` copies the action, ``p`` opens the cause page."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "page", "page", show=False),
        Binding("f", "close", "close", show=False),
    ]

    def __init__(self, title: str, read: Callable[[], tuple[SpanLines, Entry | None]]) -> None:
        """``read``: the lines, and the entry whose action and cause page the keys are for; asked once a second."""
        lines, entry = read()
        super().__init__(title, lines)
        self._read = read
        self._take(entry)

    def on_mount(self) -> None:
        """What it says changes while it is read: times, values, new findings."""
        self.set_interval(1.0, self._renew)

    def _renew(self) -> None:
        lines, entry = self._read()
        if lines != self.sheet.content:
            self._take(entry)
            self.sheet.replace(lines)

    def _take(self, entry: Entry | None) -> None:
        self._to_copy, self._cause = action_of(entry), cause_of(entry)
        keys = [*(["c copies the action"] if self._to_copy else []), *(["p cause page"] if self._cause else [])]
        self.sheet.ending = "  ".join([*keys, "Esc closes"])

    def action_page(self) -> None:
        if self._cause:
            self.app.push_screen(CauseSheet(self._cause))
