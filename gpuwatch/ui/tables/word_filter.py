"""The filter of lists of text: words that must all occur, ``-word`` that must not, ``"two words"``. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_WORD = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')


@dataclass(frozen=True, slots=True)
class WordFilter:
    """A filter as typed."""

    text: str
    words: tuple[tuple[bool, str], ...]
    """Whether it must occur, and the word in lower case."""

    def __call__(self, *texts: str) -> bool:
        """Whether the texts together match; case does not matter."""
        whole = "\n".join(texts).lower()
        return all((word in whole) is wanted for wanted, word in self.words)


def parse(text: str) -> WordFilter | None:
    """The filter for ``text``; None without a word."""
    words = tuple(
        (not minus, word.lower()) for minus, quoted, plain in _WORD.findall(text) if (word := quoted or plain)
    )
    return WordFilter(text.strip(), words) if words else None
