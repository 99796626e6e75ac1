"""Bars with a resolution of an eighth of a cell, on a fixed axis."""

from __future__ import annotations

_EIGHTHS = " ▎▎▍▌▋▊▉"
"""One eighth is drawn as two: the glyph for one eighth is also the frame's, and colour alone must not separate them."""
_LEVELS = "▁▂▃▄▅▆▇█"


def meter(fraction: float | None) -> str:
    """A vertical bar in one cell, for lines too short for a horizontal one; blank for unknown and for zero."""
    if not fraction:
        return " "
    return _LEVELS[min(max(round(fraction * 8) - 1, 0), 7 if fraction >= 0.995 else 6)]


def bar(fraction: float | None, width: int) -> tuple[str, str]:
    """The filled and the empty part of a bar of ``width`` cells; an unknown fraction gives an empty bar.

    Any fraction above zero fills at least an eighth, and only a full one fills the bar.
    """
    if fraction is None or width <= 0:
        return "", " " * width
    total = width * 8
    eighths = round(min(max(fraction, 0.0), 1.0) * total)
    if fraction > 0:
        eighths = max(eighths, 1)
    if fraction < 0.995:
        eighths = min(eighths, total - 1)
    full, rest = divmod(eighths, 8)
    filled = "█" * full + (_EIGHTHS[rest] if rest else "")
    return filled, " " * (width - len(filled))
