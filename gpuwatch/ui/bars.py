"""Bars in eighths of a cell, on an axis that never moves."""

from __future__ import annotations

from functools import lru_cache

_EIGHTHS = " ▎▎▍▌▋▊▉"
"""One eighth is drawn as two: its own sign is that of the frame, from which it must be told apart without colour."""
_LEVELS = "▁▂▃▄▅▆▇█"


def meter(fraction: float | None) -> str:
    """A bar that stands in one cell, for lines without room for one that lies; unknown and nothing are blank."""
    if not fraction:
        return " "
    return _LEVELS[min(max(round(fraction * 8) - 1, 0), 7 if fraction >= 0.995 else 6)]


@lru_cache(maxsize=4096)
def _cells(eighths: int, width: int) -> tuple[str, str]:
    full, rest = divmod(eighths, 8)
    filled = "█" * full + (_EIGHTHS[rest] if rest else "")
    return filled, " " * (width - len(filled))


def bar(fraction: float | None, width: int) -> tuple[str, str]:
    """The filled and the empty part of a bar of ``width`` cells; unknown is an empty bar.

    More than nothing is always seen, and full only when it is full.
    """
    if width <= 0:
        return "", ""
    if fraction is None:
        return "", " " * width
    total = width * 8
    eighths = round(min(max(fraction, 0.0), 1.0) * total)
    if fraction > 0:
        eighths = max(eighths, 1)
    if fraction < 0.995:
        eighths = min(eighths, total - 1)
    return _cells(eighths, width)
