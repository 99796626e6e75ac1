"""Lines that fit a terminal: words and ids stay whole, paths are divided where they have a slash."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from rich.cells import cell_len

_SPACES = re.compile(r"[ \t\n]+")  # not \u00a0, which is there to hold words together
_SOFT = (
    re.compile(r"[^/]*/+|[^/]+"),
    re.compile(r"[^,;=:&?]*[,;=:&?]+|[^,;=:&?]+"),
    re.compile(r"[^-_.]*[-_.]+|[^-_.]+"),
)
"""Where a word that is longer than the line may be divided; the better places first."""
_ID = re.compile(r"(?<![A-Za-z0-9])((?:MIG-)?GPU|MIG)-([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")
_LEAST_OF_ID = 8
"""Digits of a UUID that are shown at least; more where they would not tell two devices apart."""
_LONG_WORD = 28
"""Cells of a word that no narrow column divides."""


def words(text: str) -> list[str]:
    """What must stay together."""
    return [word for word in _SPACES.split(text) if word]


def fold(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` cells; at least one line."""
    width = max(width, 1)
    lines: list[str] = []
    line = ""
    for word in words(text):
        for number, piece in enumerate(_pieces(word, width)):
            joint = " " if line and not number else ""
            if line and cell_len(line) + len(joint) + cell_len(piece) > width:
                lines.append(line)
                line = piece
            else:
                line += joint + piece
    return [*lines, line] if line or not lines else lines


def paragraph(text: str, width: int, first: str = "", rest: str = "", most: int = 0) -> list[str]:
    """``text`` folded behind ``first`` and then ``rest``; after ``most`` lines (0: any number) it ends in ``…``."""
    lines = fold(text, max(width - max(len(first), len(rest)), 20))
    if most and len(lines) > most:
        lines = [*lines[: most - 1], f"{lines[most - 1]} …"]
    return [(rest if number else first) + line for number, line in enumerate(lines)]


def least(text: str) -> int:
    """The narrowest column in which no word of ``text`` is divided, but for long paths and the like."""
    return max((_least(word) for word in words(text)), default=0)


def _least(word: str) -> int:
    size = cell_len(word)
    if size <= _LONG_WORD or _ID.search(word):
        return size
    parts = (part for piece in _SOFT[0].findall(word) for part in _SOFT[1].findall(piece))
    return min(max(map(cell_len, parts)), _LONG_WORD)


def _pieces(word: str, width: int) -> list[str]:
    if cell_len(word) <= width:
        return [word]
    for soft in _SOFT:
        parts = soft.findall(word)
        if len(parts) > 1:
            return _joined([piece for part in parts for piece in _pieces(part, width)], width)
    return _joined(list(word), width)


def _joined(pieces: list[str], width: int) -> list[str]:
    """Neighbours together again, as far as they fit."""
    joined: list[str] = []
    for piece in pieces:
        if joined and cell_len(joined[-1]) + cell_len(piece) <= width:
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def short_ids(texts: Iterable[str]) -> Callable[[str], str]:
    """Shortens the UUIDs of GPUs to what tells those in ``texts`` apart: ``GPU-71ae67ee…``."""
    known = {match.group().lower() for text in texts if "-" in text for match in _ID.finditer(text)}
    digits = _LEAST_OF_ID
    while len({_start(uuid, digits) for uuid in known}) < len(known):
        digits += 1

    def shorten(text: str) -> str:
        return _ID.sub(lambda match: f"{_start(match.group(), digits)}…", text) if "-" in text else text

    return shorten


def _start(uuid: str, digits: int) -> str:
    kind, number = uuid[: -len("01234567-0123-0123-0123-012345678901")], uuid[-36:]
    return kind + number[:digits].rstrip("-")
