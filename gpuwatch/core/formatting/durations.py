"""Durations: read as people type them (``90s``, ``1h 30min``), and written in the form that the place needs.

=========================  ==============  ==============  ============================================
function                   95 s            7380 s          used for
=========================  ==============  ==============  ============================================
:func:`clock_duration`     ``0:01:35``     ``2:03:00``     run times of processes, in columns
:func:`rounded_duration`   ``95 s``        ``2.0 h``       how long something has lasted so far
:func:`steady_duration`    ``90 s``        ``2.0 h``       the same in text that is redrawn all the time
:func:`hours_minutes`      ``95 s``        ``2 h 03 min``  a time that is over, or a limit
:func:`ago`                ``95 s ago``    ``2.0 h ago``   ages
:func:`measured_seconds`   ``95.00 s``     ``7380.00 s``   times of steps and phases, down to 1 µs
=========================  ==============  ==============  ============================================
"""

from __future__ import annotations

import re

from gpuwatch.core.formatting.units import UNKNOWN

UNIT_SECONDS = {
    "ms": 1e-3,
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
}
"""Seconds in each unit that users may type."""
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]+)")


def parse_duration(text: str) -> float | None:
    """Seconds in a text such as ``1h 30min``; None if it is not a duration with units."""
    text = text.strip().lower()
    total, position = 0.0, 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None or match[2] not in UNIT_SECONDS:
            return None
        total += float(match[1]) * UNIT_SECONDS[match[2]]
        position = match.end()
        while position < len(text) and text[position] in " ,":
            position += 1
    return total if text else None


def clock_duration(seconds: float | None) -> str:
    """``h:mm:ss``, from one day on ``3d 04:05`` (hours and minutes); ``–`` for None."""
    if seconds is None:
        return UNKNOWN
    whole = int(seconds)
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    if days:
        return f"{days}d {hours:02}:{minutes:02}"
    return f"{hours}:{minutes:02}:{secs:02}"


def rounded_duration(seconds: float) -> str:
    """In one unit: seconds below 100 s, minutes below 100 min, hours below two days, else days."""
    if seconds < 100:
        return f"{max(seconds, 0):.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86_400 else f"{seconds / 86_400:.0f} days"


def steady_duration(seconds: float) -> str:
    """:func:`rounded_duration` rounded down, for text that must not change with every sample."""
    if seconds < 120:
        return f"{max(seconds // 10 * 10 if seconds >= 10 else seconds, 0):.0f} s"
    step = 60 if seconds < 6000 else 360
    return rounded_duration(seconds // step * step)


def hours_minutes(seconds: float) -> str:
    """As :func:`rounded_duration`, but from 100 minutes on hours with their minutes."""
    if seconds < 6000:
        return rounded_duration(seconds)
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min"


def ago(seconds: float) -> str:
    """As :func:`rounded_duration`, with ``ago`` behind it."""
    return f"{rounded_duration(seconds)} ago"


def measured_seconds(value: float | None) -> str:
    """``6.42 s``, ``18.3 ms`` or ``95 µs``; ``–`` for None."""
    if value is None:
        return UNKNOWN
    if value >= 1:
        return f"{value:.2f} s"
    if value >= 1e-3:
        return f"{value * 1e3:.1f} ms"
    return f"{value * 1e6:.0f} µs"


def tenths_of_seconds(seconds: float | None) -> str:
    """``1.5 s``, or ``less than 0.1 s``; ``an unknown time`` for None."""
    if seconds is None:
        return "an unknown time"
    return f"{seconds:.1f} s" if seconds >= 0.1 else "less than 0.1 s"
