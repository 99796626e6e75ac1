"""For a name that nobody knows: the one that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known name that ``word`` is most likely a misspelling of, or None."""
    from difflib import get_close_matches

    names = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    return names[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean growth?``, to stand behind a message; empty where nothing is close."""
    found = closest(word, known)
    return meant([found] if found else [])


def meant(names: Sequence[str]) -> str:
    """``; did you mean growth or default?``, to stand behind a message; empty where there are no names."""
    return f"; did you mean {' or '.join(names)}?" if names else ""
