"""Removes the summaries of ``gpuwatch run`` from a log: they repeat, in tables, what the program printed before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_FIRST_LINE = re.compile(r"\S.{0,4000}? {3}gpuwatch run (?:·|-) ")
_TABLE_TITLE = re.compile(r"[A-Z][a-z]+(?: [a-z]+){0,5}$")
"""Title of a table; an empty line precedes it."""
_LAST_LINE_START = "written: "
_MAX_SUMMARY_LINES = 1000


def without_summaries(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a log; those of summaries are empty, or left out at its end. All lines if there are no others."""
    summary_lines, omitted, has_output = list[str](), 0, False
    before: str | None = None  # the previous line of the summary; None outside one
    for line in lines:
        if before is None:
            in_summary = "gpuwatch run " in line and _FIRST_LINE.match(line) is not None
        else:
            in_summary = (
                line[:1] in ("", " ", "\n")
                or line.startswith(_LAST_LINE_START)
                or _FIRST_LINE.match(before) is not None
            )
            in_summary = in_summary or (not before.strip() and _TABLE_TITLE.match(line) is not None)
        if in_summary:
            before, omitted = None if line.startswith(_LAST_LINE_START) else line, omitted + 1
            summary_lines += [line] * (len(summary_lines) < _MAX_SUMMARY_LINES)
            continue
        yield from [""] * omitted
        yield line
        before, omitted, has_output = None, 0, has_output or bool(line.strip())
    yield from summary_lines if not has_output else ()
