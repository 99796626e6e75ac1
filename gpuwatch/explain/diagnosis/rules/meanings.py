"""What a message means: the one form of the tables of errors, ends and signals."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple


class Meaning(NamedTuple):
    """A row: what an error means, what to do, what it says and its cause."""

    title: str
    """``{0}`` is the first group of the pattern that matched, here and in ``action``."""
    action: str
    says: tuple[str, ...] = ()
    """Patterns of the error as ``Type: message``, or of the line that reports it; none: it is known by its topic, or
    by a signal."""
    cause: str = "unknown"


@cache
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(map(re.compile, patterns))


def first(rows: Iterable[Meaning], error: str) -> Meaning | None:
    """The first row that an error matches, with what it names in the title."""
    for row in rows:
        for pattern in _compiled(row.says):
            if (match := pattern.search(error)) is not None:
                named = [group[:120] for group in match.groups() if group]
                return row._replace(title=row.title.format(*named), action=row.action.format(*named))
    return None
