"""The times that loggers write into lines of a log, to the second."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from itertools import islice

import msgspec

_ISO = re.compile(r"\b(?P<year>20\d\d)-(?P<month>\d\d)-(?P<day>\d\d)[ T_](?P<time>\d\d:\d\d:\d\d)\b")
_GLOG = re.compile(r"\b[IWEF](?P<month>\d{1,2})(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d)\.\d")
"""Google's logging library, PyTorch and torchrun: without the year."""
_LEAP_YEAR = 2000
_MAX_LINES_BACK = 50
"""Lines before a moment in which its time is looked for."""
_MAX_CHARS = 100
"""Only the first characters of a line are examined."""


class LineTime(msgspec.Struct, frozen=True):
    """A time in a line."""

    time: datetime.datetime
    """Without a time zone; of Google's form in the year 2000."""
    has_year: bool


def time_of_line(line: str) -> LineTime | None:
    """The first time in a line; None without one."""
    start = line[:_MAX_CHARS]
    found = _ISO.search(start) or _GLOG.search(start)
    if found is None:
        return None
    has_year = found.re is _ISO
    year = found["year"] if has_year else _LEAP_YEAR
    try:
        time = datetime.datetime.fromisoformat(f"{year}-{found['month']:>02}-{found['day']} {found['time']}")
    except ValueError:
        return None
    return LineTime(time, has_year)


def hours_between(first: LineTime | None, last: LineTime | None) -> float:
    """Hours from one time to a later one; 0 unless both have the same form: others may be of different time zones."""
    if first is None or last is None or first.has_year != last.has_year:
        return 0.0
    between = last.time - first.time
    if between.days < 0 and not first.has_year:
        between += datetime.timedelta(days=366)  # the year changed
    return between.total_seconds() / 3600


class LineClock:
    """Tells about what time it is in a log, by its last lines."""

    def __init__(self, last_lines: Sequence[str]) -> None:
        """``last_lines``: the last lines of the log, kept up to date by the caller."""
        self._last_lines = last_lines
        self._latest: LineTime | None = None
        self._searched_at = 0

    def time(self, line_number: int) -> LineTime | None:
        """The time at the current line; None if no line shortly before has one."""
        if not self._searched_at or line_number - self._searched_at >= _MAX_LINES_BACK:
            self._searched_at = line_number
            lines = islice(reversed(self._last_lines), _MAX_LINES_BACK)
            self._latest = next(filter(None, map(time_of_line, lines)), None)
        return self._latest
