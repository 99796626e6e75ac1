"""The summary of ``gpuwatch run`` in a log: it repeats, cut and in tables, what the program printed before it."""

from __future__ import annotations

import re

_HEAD = re.compile(r"\S.{0,4000}? {3}gpuwatch run (?:·|-) ")
_TITLE = re.compile(r"[A-Z][a-z]+(?: [a-z]+){0,5}$")
"""Of a table; it follows an empty line."""
_LAST = "written: "
_MOST = 1000


class OwnSummary:
    """Takes the lines of a log; keeps those of summaries, which count where a log has nothing else."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self._before: str | None = None
        """The line before, within a summary."""

    def take(self, line: str) -> bool:
        """Whether the line belongs to a summary."""
        if self._before is None and ("gpuwatch run " not in line or _HEAD.match(line) is None):
            return False
        text, before = line.rstrip(), self._before
        own = before is None or not text or text[0] == " " or text.startswith(_LAST) or _HEAD.match(before) is not None
        own = own or (before == "" and _TITLE.match(text) is not None)
        self._before = text if own and not text.startswith(_LAST) else None
        if own and len(self.kept) < _MOST:
            self.kept.append(line)
        return own
