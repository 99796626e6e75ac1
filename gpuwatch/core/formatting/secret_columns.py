"""Finds secrets in tables by the heading of their column: Markdown, CSV, what psql, rich and pandas print."""

from __future__ import annotations

import re
from typing import Final

from gpuwatch.core.formatting.lazy_pattern import lazy
from gpuwatch.core.formatting.named_secrets import WORD_AND_NUMBER
from gpuwatch.core.formatting.secret_names import Strength, is_secret, looks_secret, strength

_HINTS: Final = ("passw", "pwd", "token", "secret", "key", "credential")
_WIDEST: Final = 400
"""Characters of the longest line of a table that is examined."""
_LEAST_TOKEN: Final = 16
"""Characters of a token: tables of a tokenizer have a column ``token``, too."""
_CELLS: Final = tuple(
    map(lazy, (r"[^|\u2502\u2503\u2551]+", r"[^\t]+", r"\"[^\"]*+\"|[^,]+", r"\"[^\"]*+\"|[^;]+", r"\S+(?: \S+)*+"))
)
"""What a cell is between bars, tabs, commas, semicolons, or two blanks."""
_HEADING = lazy(r"[A-Za-z][\w .-]{0,40}")
_RULE = lazy(r"[\s|:+=\-\u2500-\u257f]+")


def mask_columns(text: str, mask: str) -> str:
    """``text`` with ``mask`` in place of the secrets below a heading such as ``password``."""
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS):
        return text
    lines = text.split("\n")
    until = 0
    for number, line in enumerate(lines[:-1]):
        if number < until or len(line) > _WIDEST or not any(hint in line.lower() for hint in _HINTS):
            continue
        for cell in _CELLS:
            if columns := _secret_columns(line, cell):
                until = _mask_below(lines, number + 1, columns, cell, mask)
                break
    return "\n".join(lines)


def _cells(line: str, cell: re.Pattern[str]) -> list[tuple[int, int]]:
    """Begin and end of what stands in each cell, without blanks and quotes around it."""
    found = []
    for match in cell.finditer(line):
        begin, end = match.span()
        while begin < end and line[begin] in " \"'":
            begin += 1
        while end > begin and line[end - 1] in " \"'\r":
            end -= 1
        if begin < end:
            found.append((begin, end))
    return found


def _secret_columns(line: str, cell: re.Pattern[str]) -> dict[int, str]:
    """Secret headings of a line by place, counted from the right; none if it is no line of headings."""
    headings = [line[begin:end] for begin, end in _cells(line, cell)]
    if len(headings) < 2 or not all(_HEADING.fullmatch(heading) for heading in headings):
        return {}
    return {at - len(headings): heading for at, heading in enumerate(headings) if strength(heading) >= Strength.FIRM}


def _mask_below(lines: list[str], at: int, columns: dict[int, str], cell: re.Pattern[str], mask: str) -> int:
    """Masks in place, up to the first line that has too few cells; its number."""
    least = -min(columns)
    for number in range(at, len(lines)):
        row = _cells(lines[number], cell)
        if len(row) < max(least, 2) and not _RULE.fullmatch(lines[number]):
            return number
        for place, name in sorted(columns.items(), reverse=True):
            if -place <= len(row):
                begin, end = row[place]
                value = lines[number][begin:end]
                sure = strength(name)
                long = sure is Strength.STRONG or len(value) >= _LEAST_TOKEN
                chosen = sure is Strength.STRONG and WORD_AND_NUMBER.fullmatch(value)
                if long and " " not in value and (chosen or looks_secret(value)) and is_secret(sure, name, value):
                    lines[number] = lines[number][:begin] + mask + lines[number][end:]
    return len(lines)
