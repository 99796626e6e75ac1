"""Parses small texts: a list of words, a whole number."""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """The words of a list that is written as text."""
    return frozenset(text.split())


def whole_number(text: str) -> int | None:
    """A number of at most 18 ASCII digits; None for any other text, such as ``²`` or thousands of digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None
