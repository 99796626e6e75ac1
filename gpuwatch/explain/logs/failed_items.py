"""Work in which every item failed alike: the program goes on to its end, and even says that it succeeded."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuwatch.explain.logs.failure_lines import logs_failure
from gpuwatch.explain.logs.line_prefixes import bare_message, undecorated
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.sizes_and_device_names import explain_device_type

_MAX_SHAPES = 64
"""Shapes of error lines that are counted."""
_MAX_LINE_CHARS = 400
"""Characters of a line that are kept."""
_MIN_ITEMS, _MAX_LINES_PER_ITEM = 5, 4
"""Items, at least, and lines of one shape for each of them, at most: it may be tried again."""
_ITEMS = re.compile(
    r"(?<![\d.])(\d{1,9})/\1(?!\d)"
    r"|\b(?:total|processed|evaluated|completed|evaluating|of|all)\b[^\d\n]{0,30}?\b(\d{1,9})\b(?![\d.,]*%|\.\d)"
    r"|(?<![\d.])(\d{1,9}) (?:\w{1,12} )?(?:items|samples|files|images|prompts|requests|queries|cases)\b",
    re.IGNORECASE,
)


class FailedItems:
    """Counts lines of errors that mean nothing else, by their shape: the text without digits."""

    def __init__(self) -> None:
        self._count: dict[bytes, int] = {}
        self._first_line: dict[bytes, str] = {}

    def take(self, shape: bytes, line: str = "") -> bool:
        """Counts a line of a shape; False if too many shapes are counted."""
        if shape in self._count or len(self._count) < _MAX_SHAPES:
            self._count[shape] = self._count.get(shape, 0) + 1
            self._first_line.setdefault(shape, line)
        return shape in self._count

    def store_in(self, facts: LogFacts, last_lines: Sequence[str]) -> None:
        """Puts into ``facts`` the error of every item, and the first line that a logger calls an error."""
        facts.failed_items = explain_device_type(self._error_of_every_item(last_lines)[:_MAX_LINE_CHARS])
        logged = (line for line in self._first_line.values() if logs_failure(line))
        facts.logged_error = explain_device_type(bare_message(next(logged, ""))[:_MAX_LINE_CHARS])

    def _error_of_every_item(self, last_lines: Sequence[str]) -> str:
        """The error that came for each of the items that the last lines count; empty without one."""
        found_counts = (found for raw in last_lines for found in _ITEMS.finditer(undecorated(raw[:400])))
        items = {int(next(filter(None, found.groups()))) for found in found_counts}
        for shape, count in self._count.items():
            each = (count // number for number in items if number >= _MIN_ITEMS and count % number == 0)
            if any(0 < times <= _MAX_LINES_PER_ITEM for times in each):
                return bare_message(self._first_line[shape])
        return ""
