"""Finds secrets without a telling name: tokens by their shape, options of programs, columns of tables.

The vendors publish the shapes of their tokens, or all of them show it; ``token_shapes.txt`` has each with its source.
``-p`` and ``-u`` mean different things to different programs (``mkdir -p``, ``docker run -u 1000:100``), so they are
read only after a known program, up to the next one or the end of the line (``program_passwords.txt``).
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

from gpuwatch.core.masking.secret_likelihood import (
    MASK,
    WORD_AND_NUMBER,
    Strength,
    is_secret,
    looks_secret,
    secret_strength,
)
from gpuwatch.core.parsing import lazy, table_rows


class Shape(NamedTuple):
    """``prefixes`` followed by at least ``least`` characters of ``alphabet``; by exactly so many where ``exact``."""

    prefixes: tuple[str, ...]
    alphabet: str
    least: int
    source: str
    exact: bool = False


SHAPES: Final = tuple(
    Shape(tuple(prefixes), alphabet, int(least.rstrip("!")), source, least.endswith("!"))
    for alphabet, least, source, *prefixes in table_rows(__file__, "token_shapes.txt")
)
_FOLLOWED_BY: Final[dict[tuple[str, ...], str]] = {("SK", "AC"): r"(?:[\"',:\s]{1,6}[0-9a-f]{32}(?![0-9a-f]))?"}
"""Twilio's secret has no prefix, but follows its identifier."""


def _compile_shape(shape: Shape) -> re.Pattern[str]:
    length = f"{{{shape.least}}}(?![A-Za-z0-9])" if shape.exact else f"{{{shape.least},}}+"
    return re.compile(f"[{shape.alphabet}]{length}{_FOLLOWED_BY.get(shape.prefixes, '')}")


_TOKEN_PATTERNS: Final = (
    *((prefix, _compile_shape(shape)) for shape in SHAPES for prefix in shape.prefixes),
    # JSON Web Tokens (RFC 7519): two or three parts of base64url, the first of which begins with {".
    ("eyJ", re.compile(r"(?<![\w-]eyJ)[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]++)*+")),
    # Keys in DER (RFC 5958) as base64 in one line.
    *((prefix, re.compile(r"[\w+/]{40,}+={0,2}")) for prefix in ("MII", "MIC")),
)
_DISCORD = re.compile(r"[MNO](?<![\w-].)[\w-]{22,27}\.[\w-]{5,7}\.[\w-]{27,45}")
"""The id of the bot, the time and a signature, each in base64url (discord.com/developers: authentication)."""


_TWELVE_IN_A_ROW = re.compile(r"[A-Za-z0-9_-]{12}")
"""Each of these tokens has as many characters in a row."""


def without_tokens(text: str) -> str:
    """``text`` with :data:`MASK` in place of tokens. Takes linear time."""
    if not _TWELVE_IN_A_ROW.search(text):
        return text
    spans = []
    for prefix, rest in _TOKEN_PATTERNS:
        position = text.find(prefix)
        while position >= 0:
            end = position + len(prefix)
            if not (position and text[position - 1].isalnum() and text[position - 1].isascii()) and (
                match := rest.match(text, end)
            ):
                spans.append((position, match.end()))
                end = match.end()
            position = text.find(prefix, end)
    if text.count(".") > 1:
        spans += (match.span() for match in _DISCORD.finditer(text))
    if not spans:
        return text
    shown: list[str] = []
    copied_to = 0
    for begin, end in sorted(spans):
        if begin >= copied_to:
            shown += (text[copied_to:begin], MASK)
        copied_to = max(copied_to, end)
    return "".join((*shown, text[copied_to:]))


_SEPARATOR: Final = r"(?:\\{0,4}[\"'](?:,\s{0,3}|\s{1,3}(?:a\d{1,3}=)?)\\{0,4}[\"']?|\s{1,8}|=)"
"""Between an option and its value, on a command line or in a list of arguments as Python and audit logs print it."""
_VALUE: Final = r"(?!-|•)((?:\"[^\"\n]*+\"|'[^'\n]*+'|\\.|[^\s\"'\\])++)"
_BEFORE: Final = r"(?<![\w-])"


_NOT_A_PORT: Final = r"(?!\d{1,7}(?![^\s:/,])|/|\./)"
_USER: Final = r"[\w.@\\+-]{0,64}"
_WORD: Final = rf"[^\s\"']{{1,200}}{_SEPARATOR}"
_SEPARATOR_AND_QUOTE: Final = r"(?:\\{0,4}[\"'](?:,\s{0,3}|\s{1,3}(?:a\d{1,3}=)?)|\s{1,8}|=)?"
"""As ``_SEPARATOR``, up to the quote that opens the value."""
_USER_QUOTED: Final = r"[\w.@\\+ -]{0,64}?"


def _user_and_secret(sign: str, options: str) -> str:
    """``-u user:secret``. In quotes, the secret goes up to the quote that closes them."""
    user = rf"{_USER_QUOTED}{sign}(?![/•])"
    return rf"{_BEFORE}(?:{options})(?:" + "|".join(
        (
            rf"{_SEPARATOR_AND_QUOTE}\\{{1,4}}\"{user}([^\"\\\n]++)",
            rf"{_SEPARATOR_AND_QUOTE}\\{{1,4}}'{user}([^'\\\n]++)",
            rf"{_SEPARATOR_AND_QUOTE}\"{user}((?:[^\"\\\n]|\\.)++)",
            rf"{_SEPARATOR_AND_QUOTE}'{user}((?:[^'\\\n]|'\\''|'\"'\"'|\\.)++)",
            rf"{_SEPARATOR}?{_USER}{sign}(?!/){_VALUE})",
        )
    )


@cache
def _password_options() -> dict[str, tuple[re.Pattern[str], ...]]:
    """The rows of ``program_passwords.txt`` by program."""
    parts = {"S": _SEPARATOR, "VALUE": _VALUE, "BEFORE": _BEFORE, "PORTS": _NOT_A_PORT, "WORD": _WORD}
    found: dict[str, tuple[re.Pattern[str], ...]] = {}
    for programs, text in table_rows(__file__, "program_passwords.txt"):
        text = re.sub(r"<USER AND (.) (.*)>", lambda match: _user_and_secret(match[1], match[2]), text)
        expression = lazy(re.sub(r"<([A-Z]+)>", lambda match: parts[match[1]], text))
        for name in programs.split():
            found[name] = (*found.get(name, ()), expression)
    return found


_COMMAND_END = lazy(r"\n|\||&&|;\s")
_PROGRAM_NAME: Final = lazy(r"[\w.-]+")
_MAX_COMMAND_CHARS: Final = 4000
"""Characters of one command line: a program's options end within them."""


def without_program_passwords(text: str) -> str:
    """``text`` with :data:`MASK` in place of passwords in options of known programs. Takes linear time."""
    hits = _program_positions(text)
    if not hits:
        return text
    spans: set[tuple[int, int]] = set()
    for number, (start, name) in enumerate(hits):
        begin = start + len(name)
        limit = min(len(text), begin + _MAX_COMMAND_CHARS)
        if number + 1 < len(hits):
            limit = min(limit, hits[number + 1][0])
        end = _COMMAND_END.search(text, begin, limit)
        limit = end.start() if end else limit
        for expression in _password_options()[name]:
            spans.update(match.span(match.lastindex or 0) for match in expression.finditer(text, begin, limit))
    shown: list[str] = []
    copied_to = 0
    for begin, stop in sorted(spans):
        if begin < copied_to or stop <= begin:
            continue
        begin = stop - len(text[begin:stop].lstrip("\"'\\"))
        stop = begin + len(text[begin:stop].rstrip("\"'\\,)]"))
        shown += (text[copied_to:begin], MASK)
        copied_to = stop
    return "".join((*shown, text[copied_to:]))


def _program_positions(text: str) -> list[tuple[int, str]]:
    """Where names of known programs are; the longer of two at one place comes last."""
    found = []
    for name in _password_options().keys() & set(_PROGRAM_NAME.findall(text)):
        position = text.find(name)
        while position >= 0:
            end = position + len(name)
            before, after = text[position - 1 : position], text[end : end + 1]
            component = text[max(0, position - 3) : position].lower() == "dc="  # of a domain in LDAP: dc=net
            if not (
                component or before.isalnum() or before in tuple("_.-") or after.isalnum() or after in tuple("_.:/=-")
            ):
                found.append((position, name))
            position = text.find(name, end)
    return sorted(found)


_HINTS: Final = ("passw", "pwd", "token", "secret", "key", "credential")
_MAX_TABLE_LINE_CHARS: Final = 400
"""Characters of the longest line of a table that is examined."""
_MIN_TOKEN_CHARS: Final = 16
"""Characters of a token: tables of a tokenizer have a column ``token``, too."""
_CELLS: Final = tuple(
    map(lazy, (r"[^|\u2502\u2503\u2551]+", r"[^\t]+", r"\"[^\"]*+\"|[^,]+", r"\"[^\"]*+\"|[^;]+", r"\S+(?: \S+)*+"))
)
"""What a cell is between bars, tabs, commas, semicolons, or two blanks."""
_HEADING = lazy(r"[A-Za-z][\w .-]{0,40}")
_TABLE_RULE = lazy(r"[\s|:+=\-\u2500-\u257f]+")


def without_columns(text: str) -> str:
    """``text`` with :data:`MASK` in place of the secrets below a heading such as ``password``."""
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS):
        return text
    lines = text.split("\n")
    until = 0
    for number, line in enumerate(lines[:-1]):
        if number < until or len(line) > _MAX_TABLE_LINE_CHARS or not any(hint in line.lower() for hint in _HINTS):
            continue
        for cell in _CELLS:
            if columns := _secret_columns(line, cell):
                until = _mask_below(lines, number + 1, columns, cell)
                break
    return "\n".join(lines)


def _cells(line: str, cell: re.Pattern[str]) -> list[tuple[int, int]]:
    """Start and end of what stands in each cell, without blanks and quotes around it."""
    found = []
    for match in cell.finditer(line):
        begin = match.end() - len(match[0].lstrip(" \"'"))
        end = match.start() + len(match[0].rstrip(" \"'\r"))
        if begin < end:
            found.append((begin, end))
    return found


def _secret_columns(line: str, cell: re.Pattern[str]) -> dict[int, str]:
    """Secret headings of a line by place, counted from the right; none if it is no line of headings."""
    headings = [line[begin:end] for begin, end in _cells(line, cell)]
    if len(headings) < 2 or not all(_HEADING.fullmatch(heading) for heading in headings):
        return {}
    return {
        position - len(headings): heading
        for position, heading in enumerate(headings)
        if secret_strength(heading) >= Strength.FIRM
    }


def _mask_below(lines: list[str], position: int, columns: dict[int, str], cell: re.Pattern[str]) -> int:
    """Masks in place, up to the first line that has too few cells; its number."""
    least = -min(columns)
    for number in range(position, len(lines)):
        row = _cells(lines[number], cell)
        if len(row) < max(least, 2) and not _TABLE_RULE.fullmatch(lines[number]):
            return number
        for place, name in sorted(columns.items(), reverse=True):
            if -place <= len(row):
                begin, end = row[place]
                value = lines[number][begin:end]
                strength = secret_strength(name)
                long = strength is Strength.STRONG or len(value) >= _MIN_TOKEN_CHARS
                chosen = strength is Strength.STRONG and WORD_AND_NUMBER.fullmatch(value)
                if long and " " not in value and (chosen or looks_secret(value)) and is_secret(strength, name, value):
                    lines[number] = lines[number][:begin] + MASK + lines[number][end:]
    return len(lines)
