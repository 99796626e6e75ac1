"""Durations as people write them: ``500ms``, ``90s``, ``1h 30min``, ``2 days``."""

from __future__ import annotations

import re

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
