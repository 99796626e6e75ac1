"""Fits text to a width: folds it between words, divides paths at slashes, shortens the UUIDs of GPUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from rich.cells import cell_len

_WORD = re.compile(r"([ \t\n]*)([^ \t\n]+)")  # not at \u00a0, which holds words together
_BREAK_PATTERNS = [re.compile(rf"[^{at}]*[{at}]+|[^{at}]+") for at in ("/", ",;=:&?", "-_.")]
"""Where a word longer than the line may be divided, the best places first."""
_ID = re.compile(r"(?<![A-Za-z0-9])((?:MIG-)?GPU|MIG)-([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")
_MIN_ID_DIGITS = 8
"""Least digits of a shortened UUID; more if two devices would look the same."""
_LONG_WORD_CELLS = 28
"""Cells of a word that a narrow column does not divide."""


def words(text: str) -> list[str]:
    """The words of a text, which stay whole."""
    return [word for _, word in _WORD.findall(text)]


def fold(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` cells; at least one line."""
    width = max(width, 1)
    lines: list[str] = []
    line = ""
    for gap, word in _WORD.findall(text):
        for piece_index, piece in enumerate(_pieces(word, width)):
            spaces = " " * len(gap) if line and not piece_index else ""
            if line and cell_len(line) + len(spaces) + cell_len(piece) > width:
                lines.append(line)
                line = piece
            else:
                line += spaces + piece
    return [*lines, line] if line or not lines else lines


def paragraph(text: str, width: int, first: str = "", rest: str = "", most: int = 0) -> list[str]:
    """``text`` folded after ``first`` and then ``rest``; cut with ``…`` after ``most`` lines (0: never)."""
    indent = text[: len(text) - len(text.lstrip(" "))]  # of code in a log
    room = max(width - max(len(first), len(rest)) - len(indent), 20)
    lines = fold(text, room)
    if most and len(lines) > most:
        last = lines[most - 1]
        if cell_len(last) > room - 2 and " " in last:
            last = last.rpartition(" ")[0]
        lines = [*lines[: most - 1], f"{last} …"]
    return [(rest if line_number else first) + indent + line for line_number, line in enumerate(lines)]


def min_text_width(text: str) -> int:
    """The narrowest column in which no word of ``text`` is divided, except long paths."""
    return max((_min_word_width(word) for word in words(text)), default=0)


def _min_word_width(word: str) -> int:
    size = cell_len(word)
    if size <= _LONG_WORD_CELLS or _ID.search(word):
        return size
    parts = (part for piece in _BREAK_PATTERNS[0].findall(word) for part in _BREAK_PATTERNS[1].findall(piece))
    return min(max(map(cell_len, parts)), _LONG_WORD_CELLS)


def _pieces(word: str, width: int) -> list[str]:
    """The parts of a word, none wider than ``width``."""
    if cell_len(word) <= width:
        return [word]
    for pattern in _BREAK_PATTERNS:
        parts = pattern.findall(word)
        if len(parts) > 1:
            return [piece for part in parts for piece in _pieces(part, width)]
    return list(word)


def uuid_shortener(texts: Iterable[str]) -> Callable[[str], str]:
    """Shortens the UUIDs of GPUs, keeping those in ``texts`` distinct: ``GPU-71ae67ee…``."""
    uuids = {match.group().lower() for text in texts if "-" in text for match in _ID.finditer(text)}
    digits = _MIN_ID_DIGITS
    while len({_shortened_uuid(uuid, digits) for uuid in uuids}) < len(uuids):
        digits += 1

    def shorten(text: str) -> str:
        return _ID.sub(lambda match: f"{_shortened_uuid(match.group(), digits)}…", text) if "-" in text else text

    return shorten


def _shortened_uuid(uuid: str, digits: int) -> str:
    kind, hex_digits = uuid[: -len("01234567-0123-0123-0123-012345678901")], uuid[-36:]
    return kind + hex_digits[:digits].rstrip("-")
