"""Suggests the closest known name for a typo."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MIN_SIMILARITY = 0.72
"""difflib's least ratio for a misspelling: record is not one of report."""

_SHORT_NAME_CHARS = 5
"""Names up to this length may be less alike: pdi for pid."""


def closest_name(word: str, known: Iterable[str]) -> str | None:
    """The known name that ``word`` is most likely a misspelling of, or None."""
    from difflib import get_close_matches

    names = {name.lower(): name for name in known}
    matches = get_close_matches(
        word.lower(), names, n=1, cutoff=_MIN_SIMILARITY if len(word) > _SHORT_NAME_CHARS else 0.6
    )
    matches = matches or [name for name in names if len(word) > 2 and name.startswith(word.lower())][:1]
    if not matches:
        # One word of a longer name: drak for textual-dark.
        parts = {part: name for name in reversed(names.values()) for part in name.lower().split("-") if len(part) > 2}
        return next((parts[part] for part in get_close_matches(word.lower(), parts, n=1, cutoff=0.7)), None)
    return names[matches[0]]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean growth?`` to end a message; empty if nothing is close."""
    name = closest_name(word, known)
    return did_you_mean_any([name] if name else [])


def did_you_mean_any(names: Sequence[str]) -> str:
    """``; did you mean growth or default?`` to end a message; empty without names."""
    return f"; did you mean {' or '.join(names)}?" if names else ""
