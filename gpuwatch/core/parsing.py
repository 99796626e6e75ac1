"""Parses text: whole numbers, lists of words, tables in files, and patterns that are compiled when first used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast


def parse_integer(text: str) -> int | None:
    """A number of at most 18 ASCII digits; None for any other text, such as ``²`` or thousands of digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def word_set(text: str) -> frozenset[str]:
    """The words of a list that is written as text."""
    return frozenset(text.split())


def table_rows(module_file: str, name: str) -> list[list[str]]:
    """The cells of each row of the file ``name`` beside a module (its ``__file__``), without comments (``#``)."""
    lines = Path(module_file).with_name(name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split")


class _LazyPattern:
    """Has the attributes of :class:`re.Pattern`; its methods are the pattern's own after the first use."""

    def __init__(self, source: str, flags: int) -> None:
        self._source_and_flags = source, flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(*self._source_and_flags)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def lazy(source: str, flags: int = 0) -> re.Pattern[str]:
    """Like :func:`re.compile`, but at the first use, where an error in ``source`` shows.

    Compiling the patterns of logs and secrets takes longer than most commands do otherwise, and most use few of them.
    """
    return cast("re.Pattern[str]", _LazyPattern(source, int(flags)))
