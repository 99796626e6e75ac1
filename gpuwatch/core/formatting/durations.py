"""Durations and ages, read as people write them (``90s``, ``1h 30min``) and written (``8 s``, ``3 min``, ``2.5 h``)."""

from __future__ import annotations

import datetime
import re

from gpuwatch.core.formatting.safe_text import UNKNOWN

UNITS = {
    "ms": 1e-3,
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
}
"""Seconds of each."""
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]+)")


def seconds_of(text: str) -> float | None:
    """The seconds; None if it is not a duration with units."""
    text = text.strip().lower()
    total, at = 0.0, 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None or found[2] not in UNITS:
            return None
        total += float(found[1]) * UNITS[found[2]]
        at = found.end()
        while at < len(text) and text[at] in " ,":
            at += 1
    return total if text else None


def duration(seconds: float | None) -> str:
    """Run time as ``h:mm:ss``, with days as ``3d 04:05``."""
    if seconds is None:
        return UNKNOWN
    whole = int(seconds)
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    if days:
        return f"{days}d {hours:02}:{minutes:02}"
    return f"{hours}:{minutes:02}:{secs:02}"


def span(seconds: float) -> str:
    """``8 s``, ``3 min``, ``2.5 h``, ``4 days``."""
    if seconds < 100:
        return f"{max(seconds, 0):.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86_400 else f"{seconds / 86_400:.0f} days"


def steady_span(seconds: float) -> str:
    """:func:`span` with seconds in tens, for text that must not change with every sample."""
    return span(seconds // 10 * 10 if 10 <= seconds < 100 else seconds)


def lasted(seconds: float) -> str:
    """``8 s``, ``3 min``, ``2 h 03 min``: for a time that is over, hours with their minutes."""
    if seconds < 6000:
        return span(seconds)
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min"


def ago(seconds: float) -> str:
    """``8 s ago``."""
    return f"{span(seconds)} ago"


def seconds(value: float | None) -> str:
    """A measured time: ``6.42 s``, ``18.3 ms``, ``95 µs``."""
    if value is None:
        return UNKNOWN
    if value >= 1:
        return f"{value:.2f} s"
    if value >= 1e-3:
        return f"{value * 1e3:.1f} ms"
    return f"{value * 1e6:.0f} µs"


def utc(at: float) -> datetime.datetime:
    """The moment ``at`` seconds after the epoch."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC)
