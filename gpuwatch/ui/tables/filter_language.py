"""The language of filters: words that must all match, optionally of one field. Which fields there are, each list says.

``python alice`` · ``user:alice`` or ``user~alice`` · ``mem>2GiB`` · ``time>1h30m`` · ``cmd:"a b"`` · ``-xorg`` (not)

A word that looks like a field but is invalid (``mem>lots``, ``usr:alice``) is an error, never a text search; put it in
quotes to search for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, ParamSpec

from gpuwatch.core import input_size_limits
from gpuwatch.core.formatting.suggest import closest_name
from gpuwatch.core.safe_text import printable, shorten

P = ParamSpec("P")
"""What a test gets: a process and a moment, or a host and one of its GPUs."""
Kind = Literal["size", "percent", "time", "count"]

_SIZE_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_TIME_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_WORD_PATTERN = re.compile(r'(?:[^\s"]|"[^"]*(?:"|$))+')
_FIELD_WORD = re.compile(r"^([a-z][\w-]*)%?(>=|<=|>|<|=|:|~)(.*)$", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"^(\d+(?:\.\d*)?|\.\d+)([a-z%]*)$", re.IGNORECASE)
_SIZE_SUFFIX = re.compile(r"^([bkmgt]?)(?:i?b)?$", re.IGNORECASE)
_DURATION = re.compile(r"^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$", re.IGNORECASE)
_CLOCK_DURATION = re.compile(r"^(?:(\d+)d\s*(\d+):(\d\d)|(\d+):(\d\d):(\d\d))$", re.IGNORECASE)
"""A duration as the column shows it: ``1:30:00``, ``3d 04:05``."""
_MAX_NUMBER = 1e18
"""Larger numbers are clamped to this: no float holds a number of hundreds of digits."""
_MAX_DIGITS = 18
"""Maximum digits of an integer: more than any pid or GPU has, and within Python's limit."""
_MAX_QUOTED_CHARS = 40
"""Characters of a word that an error shows."""


class FilterError(ValueError):
    """An invalid word; the message says why, in one line."""

    rest: Filter[...] | None = None
    """The filter without that word; None if nothing is left."""


@dataclass(frozen=True)
class Filter(Generic[P]):
    """A filter as typed, and its tests."""

    text: str
    tests: tuple[Callable[P, bool], ...]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        return all(test(*args, **kwargs) for test in self.tests)


@dataclass(frozen=True, slots=True)
class NumberField(Generic[P]):
    """A field that is compared with a number."""

    get: Callable[P, float | None]
    kind: Kind = "count"
    shown: Callable[[float], float] = float
    """Rounds a value as the table does, so that the filter agrees with what is on screen."""


@dataclass(frozen=True)
class FilterFields(Generic[P]):
    """The fields of a list; of one without fields, every word is searched for."""

    anywhere: Callable[[str], Callable[P, bool]]
    """The test of a word without a field, which is in lower case."""
    texts: Mapping[str, Callable[P, str]] = field(default_factory=dict)
    """Text fields: matched anywhere in the text."""
    numbers: Mapping[str, NumberField[P]] = field(default_factory=dict)
    exact: Mapping[str, Callable[[str], Callable[P, bool]]] = field(default_factory=dict)
    """Fields whose value, in lower case, makes the test; :class:`FilterError` if it is invalid."""
    ids: Mapping[str, Callable[P, int | None]] = field(default_factory=dict)
    """Integers: equal with ``:``, or compared."""
    words: Mapping[str, Callable[P, bool]] = field(default_factory=dict)
    """Words that are tests by themselves."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Aliases: ids and headers of columns."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.exact, *self.ids, *self.texts, *self.numbers)


@dataclass(frozen=True, slots=True)
class _Word:
    typed: str
    text: str
    """Without its quotes."""
    quote_position: int
    """Position of the first quote: after it, nothing is an operator."""


def _words(text: str) -> Iterator[_Word]:
    """Words split at blanks outside quotes; an open quote extends to the end."""
    for match in _WORD_PATTERN.finditer(text):
        typed = match[0]
        quote = typed.find('"')
        yield _Word(typed, typed.replace('"', ""), len(typed) if quote < 0 else quote)


def _short(text: str) -> str:
    return printable(shorten(text, _MAX_QUOTED_CHARS))


def _parse_duration(text: str) -> float | None:
    clock = _CLOCK_DURATION.match(text)
    if clock is not None:
        days, hours, minutes, *rest = (float(part or 0) for part in clock.groups())
        return days * 86400 + (hours + rest[0]) * 3600 + (minutes + rest[1]) * 60 + rest[2]
    span = _DURATION.match(text)
    if span is None or not any(span.groups()):
        return None
    return float(sum(float(part or 0) * unit for part, unit in zip(span.groups(), (86400, 3600, 60, 1), strict=True)))


def _parse_number(name: str, kind: Kind, text: str) -> float:
    """The number after an operator; :class:`FilterError` if it is not one."""
    if kind == "time" and (seconds := _parse_duration(text)) is not None:
        return min(seconds, _MAX_NUMBER)
    match = _NUMBER.match(text)
    if match is None:
        expected = {"size": "a number such as 2GiB", "time": "a time such as 90s or 1h30m"}.get(kind, "a number")
        raise FilterError(f"{name} is compared with {expected}" + (f", not “{_short(text)}”" if text else ""))
    number, unit = min(float(match[1]), _MAX_NUMBER), match[2].lower()
    if kind == "size":
        suffix = _SIZE_SUFFIX.match(unit)
        if suffix is not None:
            return number * _SIZE_UNITS[suffix[1]]
    elif kind == "time" and unit in _TIME_UNITS:
        return number * _TIME_UNITS[unit]
    elif unit == "" or (unit == "%" and kind == "percent"):
        return number
    raise FilterError(f"“{_short(unit)}” is not a unit of {name}")


def _comparison(amount: NumberField[P], operator: str, wanted: float) -> Callable[P, bool]:
    wanted = amount.shown(wanted)

    def test(*args: P.args, **kwargs: P.kwargs) -> bool:
        value = amount.get(*args, **kwargs)
        if value is None:
            return False
        value = amount.shown(value)
        return (
            (value > wanted and ">" in operator)
            or (value < wanted and "<" in operator)
            or (value == wanted and "=" in operator)
        )

    return test


def parse_integer(name: str, text: str, expected: str) -> int:
    """An integer that was typed; :class:`FilterError` that says ``expected`` is wanted if it is none."""
    digits = text.lstrip("0") or text[:1]
    if not (text.isascii() and text.isdecimal()) or len(digits) > _MAX_DIGITS:
        raise FilterError(f"{name} is {expected}, not “{_short(text)}”")
    return int(digits)


def _field_test(word: _Word, fields: FilterFields[P]) -> Callable[P, bool] | None:
    """The test of a word with a field; None for a plain text search."""
    match = _FIELD_WORD.match(word.text)
    if match is None or match.start(2) >= word.quote_position or not fields.names:
        return None
    typed, operator, rest = match.groups()
    name = fields.aliases.get(typed.lower(), typed.lower())
    if name not in fields.names:
        if rest.startswith("//"):
            return None  # http://host
        suggestion = closest_name(name, (*fields.names, *fields.aliases)) if len(name) > 2 else None
        if suggestion is None and operator == "=":
            return None  # part of a command line: lr=0.1
        hint = f"; did you mean {suggestion}?" if suggestion is not None else "; quote it to search for the text"
        raise FilterError(f"there is no field “{_short(typed)}”{hint}")
    contains = operator in (":", "~")
    if name in fields.ids and not contains:
        return _comparison(NumberField(fields.ids[name]), operator, _parse_number(name, "count", rest))
    if name in fields.numbers:
        if contains:
            raise FilterError(f"{name} is a number: write {name}>{_short(rest) or '…'}")
        amount = fields.numbers[name]
        return _comparison(amount, operator, _parse_number(name, amount.kind, rest))
    if not contains:
        raise FilterError(f"{name} is text: write {name}:{_short(rest) or '…'}")
    wanted = rest.lower()
    if not wanted:  # its value has not been typed yet
        return lambda *args, **kwargs: True
    if name in fields.texts:
        get = fields.texts[name]
        return lambda *args, **kwargs: wanted in get(*args, **kwargs).lower()
    if name in fields.ids:
        return _comparison(NumberField(fields.ids[name]), "=", parse_integer(name, wanted, "a number"))
    return fields.exact[name](wanted)


def _word_test(word: _Word, fields: FilterFields[P]) -> Callable[P, bool]:
    if (
        word.quote_position > 0
        and len(word.text) > 1
        and word.text[0] == "-"
        and (word.text[1] != "-" or word.quote_position == 1)
    ):
        inner = _word_test(_Word(word.typed, word.text[1:], word.quote_position - 1), fields)
        return lambda *args, **kwargs: not inner(*args, **kwargs)
    fielded = _field_test(word, fields)
    if fielded is not None:
        return fielded
    anywhere = word.text.lower()
    if word.quote_position and anywhere in fields.words:
        return fields.words[anywhere]
    return fields.anywhere(anywhere)


def parse(text: str, fields: FilterFields[P]) -> Filter[P] | None:
    """The filter for ``text``, None if empty; :class:`FilterError` if a word is invalid, or the text too long."""
    if len(text) > input_size_limits.FILTER.bytes:
        raise FilterError(f"a filter has at most {input_size_limits.FILTER.bytes:,} characters")
    words = list(_words(text))
    tests, valid_words, first_error = [], [], None
    for word in words:
        try:
            tests.append(_word_test(word, fields))
            valid_words.append(word.typed)
        except FilterError as error:
            first_error = first_error or error
    if first_error is not None:
        first_error.rest = Filter(" ".join(valid_words), tuple(tests)) if valid_words else None
        raise first_error
    return Filter(text.strip(), tuple(tests)) if words else None


WordFilter = Filter[...]
"""The filter of a list without fields: of the texts of an entry, taken together."""
_NO_FIELDS: FilterFields[...] = FilterFields(anywhere=lambda wanted: lambda *texts: wanted in "\n".join(texts).lower())


def parse_words(text: str) -> WordFilter | None:
    """As :func:`parse`, for a list without fields."""
    return parse(text, _NO_FIELDS)
