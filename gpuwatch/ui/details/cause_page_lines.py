"""The page of a cause as styled lines: Markdown, wrapped. Pure."""

from __future__ import annotations

import re

from gpuwatch.explain.diagnosis.reference.cause_pages import page
from gpuwatch.ui.drawing.wrapping import SpanLines, wrap_line

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
