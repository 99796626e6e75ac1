"""Sets of words that are written as one text."""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """The words of a list that is written as text."""
    return frozenset(text.split())
