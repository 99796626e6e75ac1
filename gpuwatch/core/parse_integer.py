"""Reads whole numbers from text that may be anything."""

from __future__ import annotations


def parse_integer(text: str) -> int | None:
    """A number of at most 18 ASCII digits; None for any other text, such as ``²`` or thousands of digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None
