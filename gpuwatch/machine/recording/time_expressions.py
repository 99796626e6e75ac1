"""Moments as people write and read them: ``14:05``, ``20 min ago``, ``yesterday 14:05``, ISO 8601."""

from __future__ import annotations

import datetime
import re

from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.durations import parse_duration

EXAMPLES = "14:05, 14:05:30, 'yesterday 14:05', '20 min ago', -2h, 2026-05-11T14:05, now"
_TIME = re.compile(r"(?:(today|yesterday)\s+)?(\d{1,2}):(\d{2})(?::(\d{2}))?")


def parse_moment(text: str, now: float, zone: datetime.tzinfo | None = None) -> float:
    """Seconds since the epoch. A time of day is the last one not later than ``now``; ``zone`` None: local time.

    ``now`` is the end of a recording, so that ``14:05`` is in it. :class:`UsageError` if it is not a moment.
    """
    lowered = " ".join(text.strip().lower().split())
    if lowered == "now":
        return now
    ago = lowered.removesuffix(" ago") if lowered.endswith(" ago") else lowered[1:] if lowered.startswith("-") else None
    if ago is not None and (seconds := parse_duration(ago)) is not None:
        return now - seconds
    if lowered.startswith("@") and re.fullmatch(r"@\d{1,11}(\.\d+)?", lowered):
        return float(lowered[1:])
    time_of_day = _TIME.fullmatch(lowered)
    try:
        if time_of_day is not None:
            return _time_of_day(time_of_day, now, zone)
        when = datetime.datetime.fromisoformat(text.strip().upper())
        return (when if when.tzinfo is not None else when.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(f"not a time: {text!r}", hint=f"for example {EXAMPLES}") from None


def parse_begin(text: str, now: float) -> float:
    """:func:`parse_moment`, for a start: ``7d`` is 7 days before ``now``."""
    seconds = parse_duration(text)
    return parse_moment(text, now) if seconds is None else now - seconds


def _time_of_day(time_of_day: re.Match[str], now: float, zone: datetime.tzinfo | None) -> float:
    local_now = datetime.datetime.fromtimestamp(now, zone)
    when = local_now.replace(
        hour=int(time_of_day[2]), minute=int(time_of_day[3]), second=int(time_of_day[4] or 0), microsecond=0
    )
    if time_of_day[1] == "yesterday" or (time_of_day[1] is None and when.timestamp() > now):
        when -= datetime.timedelta(days=1)
    return when.timestamp()


def time_text(at: float) -> str:
    """``2026-05-11 14:05:31``, in local time; a number that is no time, as it is."""
    try:
        return datetime.datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError, TypeError):
        return f"@{at}"
