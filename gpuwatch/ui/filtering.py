"""The filter of the process table: words that must all match, some of them with a field.

``python alice`` · ``user:alice`` · ``gpu:1`` · ``mem>2GiB`` · ``sm<5`` · ``-xorg`` (not)

A word that begins like a field and cannot be one (``mem>lots``, ``usr:alice``) is an error that is
said, never a search for its letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from gpuwatch.formatting.suggest import closest
from gpuwatch.formatting.text import printable
from gpuwatch.model.snapshot import Process

_TEXT_FIELDS: dict[str, Callable[[Process], str]] = {
    "user": lambda p: p.user or "",
    "pid": lambda p: str(p.pid),
    "cmd": lambda p: p.command or p.name or "",
    "framework": lambda p: p.framework or "",
    "type": lambda p: p.type,
    "container": lambda p: p.container or "",
}
_NUMBER_FIELDS = {
    "mem": "gpu_memory_bytes",
    "sm": "sm_percent",
    "mbw": "memory_percent",
    "cpu": "cpu_percent",
    "host": "host_memory_bytes",
    "time": "run_seconds",
}
_SIZES = frozenset({"mem", "host"})
FIELDS = (*_TEXT_FIELDS, "gpu", *_NUMBER_FIELDS)
SIGNS = {field: ">" if field in _NUMBER_FIELDS else ":" for field in FIELDS}
"""What stands between a field and what is wanted of it."""
_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_TIMES = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_COMPARISON = re.compile(r"^(\w+)(>=|<=|>|<|=)(.*)$")
_NUMBER = re.compile(r"^(\d+(?:\.\d*)?|\.\d+)([a-z%]*)$", re.IGNORECASE)
_SIZE_SUFFIX = re.compile(r"^([bkmgt]?)(?:i?b)?$", re.IGNORECASE)

Test = Callable[[Process], bool]


class FilterError(ValueError):
    """A word that cannot be meant; the message says why, in one line."""

    rest: Filter | None = None
    """The filter without that word, None where nothing is left."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter as it was typed, and the tests that it means."""

    text: str
    tests: tuple[Test, ...]

    def __call__(self, process: Process) -> bool:
        """True when every word matches."""
        return all(test(process) for test in self.tests)


def _amount(field: str, text: str) -> float:
    """The number behind a sign; :class:`FilterError` when it is none."""
    match = _NUMBER.match(text)
    if match is None:
        what = "a number such as 2GiB" if field in _SIZES else "a number"
        raise FilterError(f"{field} is compared with {what}" + (f", not “{printable(text)}”" if text else ""))
    number, unit = float(match[1]), match[2].lower()
    if field in _SIZES:
        suffix = _SIZE_SUFFIX.match(unit)
        if suffix is not None:
            return number * _UNITS[suffix[1]]
    elif field == "time" and unit in _TIMES:
        return number * _TIMES[unit]
    elif field not in _SIZES and unit in ("", "%"):
        return number
    raise FilterError(f"“{printable(unit)}” is no unit of {field}")


def _comparison(word: str) -> Test | None:
    match = _COMPARISON.match(word)
    if match is None:
        return None
    field, sign = match[1].lower(), match[2]
    if field in _TEXT_FIELDS or field == "gpu":
        raise FilterError(f"{field} is text: write {field}:{printable(match[3]) or '…'}")
    if field not in _NUMBER_FIELDS:
        meant = closest(field, _NUMBER_FIELDS)
        if meant is None:
            return None  # part of a command line: --lr=0.1
        raise FilterError(f"there is no field “{printable(match[1])}”; did you mean {meant}?")
    wanted, reading = _amount(field, match[3]), _NUMBER_FIELDS[field]

    def test(process: Process) -> bool:
        value = process.number(reading)
        if value is None:
            return False
        return (value > wanted and ">" in sign) or (value < wanted and "<" in sign) or (value == wanted and "=" in sign)

    return test


def _field(word: str) -> Test | None:
    field, colon, rest = word.partition(":")
    if not colon:
        return None
    name, wanted = field.lower(), rest.lower()
    if name == "gpu":
        if wanted and not wanted.isdecimal():
            raise FilterError(f"gpu is the number of a GPU, not “{printable(rest)}”")
        return lambda process: str(process.device_index) == wanted or wanted == ""
    if name in _TEXT_FIELDS:
        get = _TEXT_FIELDS[name]
        return lambda process: wanted in get(process).lower()
    if name in _NUMBER_FIELDS:
        raise FilterError(f"{name} is a number: write {name}>{printable(rest) or '…'}")
    meant = closest(name, FIELDS) if name.isalpha() and len(name) > 2 else None
    if meant is not None:
        raise FilterError(f"there is no field “{printable(field)}”; did you mean {meant}?")
    return None  # part of a command line: http://host, model:latest


def _word(word: str) -> Test:
    if len(word) > 1 and word[0] == "-" and word[1] != "-":
        inner = _word(word[1:])
        return lambda process: not inner(process)
    fielded = _comparison(word) or _field(word)
    if fielded is not None:
        return fielded
    anywhere = word.lower()

    def test(process: Process) -> bool:
        if str(process.device_index) == anywhere:
            return True
        return any(anywhere in get(process).lower() for get in _TEXT_FIELDS.values())

    return test


def parse(text: str) -> Filter | None:
    """The filter that ``text`` means, None for an empty one; :class:`FilterError` for one that means nothing."""
    words = text.split()
    tests, kept, wrong = [], [], None
    for word in words:
        try:
            tests.append(_word(word))
            kept.append(word)
        except FilterError as error:
            wrong = wrong or error
    if wrong is not None:
        wrong.rest = Filter(" ".join(kept), tuple(tests)) if kept else None
        raise wrong
    return Filter(text.strip(), tuple(tests)) if words else None
