"""How long a time between two samples is a gap. Times are in seconds."""

from __future__ import annotations

UNOBSERVED = 15.0
"""A time without samples that is counted for nothing and nobody, if samples are usually more frequent."""
INTERVALS = 2.5
"""A gap is at least so many intervals."""
_LATE = 4.0
"""Beyond its interval, a sample may be so late."""


def gap_limit(interval: float) -> float:
    """From how long on it is told as a gap, if a sample is taken every ``interval`` seconds."""
    return max(INTERVALS * interval, interval + _LATE)


def unobserved_limit(interval: float) -> float:
    """From how long on nobody knows what happened meanwhile: it is counted for no process and no condition."""
    return max(UNOBSERVED, INTERVALS * interval)
