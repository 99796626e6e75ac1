"""The page about a cause, over the screen."""

from __future__ import annotations

import re

from gpuwatch.diagnosis.pages import page
from gpuwatch.ui.screens.lines_modal import Lines, LinesModal

_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


def page_lines(text: str) -> Lines:
    """Markdown as lines: headings, code and bullets told apart, the rest as it is."""
    lines: Lines = []
    code = False
    for raw in text.splitlines():
        if raw.startswith("```"):
            code = not code
        elif code:
            lines.append([("    ", "text"), (raw, "accent")])
        elif raw.startswith("#"):
            lines.append([(_plain(raw.lstrip("# ")), "strong")])
        elif raw.startswith("- "):
            lines.append([("  · ", "dim"), (_plain(raw[2:]), "text")])
        elif raw.startswith("  ") and raw.strip():
            lines.append([("    ", "text"), (_plain(raw.strip()), "text")])
        else:
            lines.append([(_plain(raw), "text")] if raw.strip() else [])
    return lines


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text).replace("`", "").replace("**", "")


class CauseSheet(LinesModal[None]):
    """What ``gpuwatch cause ID`` prints."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"gpuwatch cause {cause}", page_lines(page(cause)))
