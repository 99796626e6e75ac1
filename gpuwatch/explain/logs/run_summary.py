"""The summary of ``gpuwatch run`` in a log: it repeats, cut and in tables, what the program printed before it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_HEAD = re.compile(r"\S.{0,4000}? {3}gpuwatch run (?:·|-) ")
_TITLE = re.compile(r"[A-Z][a-z]+(?: [a-z]+){0,5}$")
"""Title of a table; an empty line precedes it."""
_LAST = "written: "
_MAX_LINES = 1000


def without_summaries(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a log, those of summaries empty, or left out at its end; all lines if there are no others."""
    kept, left_out, heard = list[str](), 0, False
    before: str | None = None  # the line before, within a summary
    for line in lines:
        if before is None:
            own = "gpuwatch run " in line and _HEAD.match(line) is not None
        else:
            own = line[:1] in ("", " ", "\n") or line.startswith(_LAST) or _HEAD.match(before) is not None
            own = own or (not before.strip() and _TITLE.match(line) is not None)
        if own:
            before, left_out = None if line.startswith(_LAST) else line, left_out + 1
            kept += [line] * (len(kept) < _MAX_LINES)
            continue
        yield from [""] * left_out
        yield line
        before, left_out, heard = None, 0, heard or bool(line.strip())
    yield from kept if not heard else ()
