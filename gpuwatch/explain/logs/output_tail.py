"""The last lines of a program's output, and earlier ones that are needed to understand it."""

from __future__ import annotations

import re
from collections import deque

from gpuwatch.explain.logs.device_names import explain_device_type
from gpuwatch.explain.logs.log_line_text import last_bar_state
from gpuwatch.explain.logs.tracebacks import TRACEBACK

_MAX_TAIL_LINES = 80
_MAX_LINE_CHARS = 2000
_MAX_FIRST_DECISIVE, _MAX_LATER_DECISIVE = 6, 6
_DECISIVE = (
    "Created device",
    "ran out of memory trying to allocate",
    "ailed call to cuInit",
    "Cannot dlopen some GPU libraries",
    TRACEBACK,
)
_OMITTED_LINES = re.compile(r"… (\d{1,18}) earlier lines? not kept$")


def is_decisive(line: str) -> bool:
    """Whether the line is kept longer: it names the GPU, or what failed."""
    return any(text in line for text in _DECISIVE)


def omitted_line_count(line: str) -> int:
    """The number of lines that this mark replaces; 0 for any other line."""
    match = _OMITTED_LINES.match(line)
    return int(match[1]) if match is not None else 0


class OutputTail:
    """Takes lines; keeps a bounded number of them."""

    def __init__(self) -> None:
        self._last: deque[str] = deque()
        self._first_decisive: list[str] = []
        self._later_decisive: deque[str] = deque(maxlen=_MAX_LATER_DECISIVE)
        self._dropped = 0

    def add(self, line: str) -> None:
        """Adds a line; of a progress bar, which overwrites itself, its last state."""
        self._last.append(explain_device_type(last_bar_state(line)[:_MAX_LINE_CHARS]))
        if len(self._last) > _MAX_TAIL_LINES:
            self._dropped += 1
            if is_decisive(dropped := self._last.popleft()):
                (
                    self._first_decisive if len(self._first_decisive) < _MAX_FIRST_DECISIVE else self._later_decisive
                ).append(dropped)

    def lines(self) -> tuple[str, ...]:
        """Decisive lines, a mark with the number of omitted ones, and the last lines."""
        decisive = (*self._first_decisive, *self._later_decisive)
        dropped = self._dropped - len(decisive)
        mark = (f"… {dropped} earlier line{'' if dropped == 1 else 's'} not kept",) if dropped else ()
        return (*decisive, *mark, *self._last)
