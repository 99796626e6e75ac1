"""Parts of English sentences: lists of names, and sentences as clauses."""

from __future__ import annotations

from collections.abc import Sequence


def name_list(names: Sequence[str], most: int = 4) -> str:
    """``a``, ``a and b``, ``a, b, c, d and 3 more``; at most ``most`` names."""
    shown, omitted = list(names[:most]), len(names) - most
    if omitted > 0:
        return f"{', '.join(shown)} and {omitted} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def as_clause(sentence: str) -> str:
    """As part of a sentence: without a capital at its start, except in names."""
    return sentence if not sentence[1:2].islower() and sentence[1:2] != " " else sentence[:1].lower() + sentence[1:]
