"""The filter of the process table: words that must all match, optionally of one field.

``python alice`` · ``user:alice`` · ``gpu:1`` · ``mem>2GiB`` · ``time>1h30m`` · ``cmd:"a b"`` · ``-xorg`` (not)

Every column of the table is a field, by its id and by its header. A word that looks like a field but is invalid
(``mem>lots``, ``usr:alice``) is an error, never a text search; put it in quotes to search for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from gpuwatch.formatting.brief import short_framework
from gpuwatch.formatting.suggest import closest
from gpuwatch.formatting.text import printable, shorten
from gpuwatch.formatting.units import shown_memory
from gpuwatch.model.snapshot import Process
from gpuwatch.ui.tables.columns import on_cpu

Test = Callable[[Process, float], bool]
"""Of a process at a moment, in seconds since the epoch."""


@lru_cache(maxsize=256)
def _names_of(framework: str) -> str:
    """A framework's full name and every form in which the column may show it."""
    name, _, version = framework.partition(" ")
    brief = f"{'tf' if name == 'tensorflow' else name} {version}"
    return "\n".join((framework, brief, *(short_framework(framework, width) for width in range(6, 16)))).lower()


def _reading(name: str) -> Callable[[Process, float], float | None]:
    return lambda process, at: process.number(name)


_TEXTS: dict[str, Callable[[Process], str]] = {
    "user": lambda p: p.user or "",
    "type": lambda p: p.type,
    "job": lambda p: p.container or "",
    "framework": lambda p: _names_of(p.framework) if p.framework else "",
    "cmd": lambda p: p.command or p.name or "",
}
"""Text fields: matched anywhere in the text."""
_NUMBERS: dict[str, Callable[[Process, float], float | None]] = {
    "mem": _reading("gpu_memory_bytes"),
    "sm": _reading("sm_percent"),
    "mbw": _reading("memory_percent"),
    "enc": _reading("encoder_percent"),
    "dec": _reading("decoder_percent"),
    "cpu": _reading("cpu_percent"),
    "host": _reading("host_memory_bytes"),
    "threads": _reading("threads"),
    "time": Process.run_seconds,
}
"""What is compared: a number of a process at a moment."""
FIELDS = ("gpu", "pid", "mig", "sees", "visible", *_TEXTS, *_NUMBERS)
SIGNS = {field: ">" if field in _NUMBERS else ":" for field in FIELDS}
"""The operator between a field and its value."""
_ALSO = {"memory": "mem", "gpu-mem": "mem", "thr": "threads", "command": "cmd", "container": "job"}
"""Aliases: ids and headers of columns."""
_SIZES = frozenset({"mem", "host"})
_PERCENTAGES = frozenset({"sm", "mbw", "enc", "dec", "cpu"})
_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SHOWN: dict[str, Callable[[float], float]] = {
    "mem": shown_memory,
    "time": math.floor,
    **dict.fromkeys(("sm", "mbw", "enc", "dec"), round),
}
"""Values that the table rounds, and how."""
_TIMES = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_TYPED = re.compile(r'(?:[^\s"]|"[^"]*(?:"|$))+')
_SIGNED = re.compile(r"^([a-z][\w-]*)%?(>=|<=|>|<|=|:)(.*)$", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"^(\d+(?:\.\d*)?|\.\d+)([a-z%]*)$", re.IGNORECASE)
_SIZE_SUFFIX = re.compile(r"^([bkmgt]?)(?:i?b)?$", re.IGNORECASE)
_SPAN = re.compile(r"^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$", re.IGNORECASE)
_CLOCK = re.compile(r"^(?:(\d+)d\s*(\d+):(\d\d)|(\d+):(\d\d):(\d\d))$", re.IGNORECASE)
"""A duration as the column shows it: ``1:30:00``, ``3d 04:05``."""
_PAIR = re.compile(r"^(\d{1,18})(?:→|->|>)(\d{1,18})$")
_MOST = 1e18
"""Larger numbers are clamped to this: no float holds a number of hundreds of digits."""
_DIGITS = 18
"""Maximum digits of an integer: more than any pid or GPU has, and within Python's limit."""
_QUOTED = 40
"""Characters of a word that an error shows."""


class FilterError(ValueError):
    """An invalid word; the message says why, in one line."""

    rest: Filter | None = None
    """The filter without that word; None if nothing is left."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter as typed, and its tests."""

    text: str
    tests: tuple[Test, ...]

    def __call__(self, process: Process, at: float) -> bool:
        """True when every word matches at a moment, in seconds since the epoch."""
        return all(test(process, at) for test in self.tests)


@dataclass(frozen=True, slots=True)
class _Word:
    typed: str
    text: str
    """Without its quotes."""
    plain: int
    """Position of the first quote: after it, nothing is an operator."""

    def without_minus(self) -> _Word:
        return _Word(self.typed, self.text[1:], self.plain - 1)


def _words(text: str) -> Iterator[_Word]:
    """Words split at blanks outside quotes; an open quote extends to the end."""
    for match in _TYPED.finditer(text):
        typed = match[0]
        quote = typed.find('"')
        yield _Word(typed, typed.replace('"', ""), len(typed) if quote < 0 else quote)


def _brief(text: str) -> str:
    """The typed text as an error message shows it."""
    return printable(shorten(text, _QUOTED))


def _time(text: str) -> float | None:
    clock = _CLOCK.match(text)
    if clock is not None:
        days, hours, minutes, *rest = (float(part or 0) for part in clock.groups())
        return days * 86400 + (hours + rest[0]) * 3600 + (minutes + rest[1]) * 60 + rest[2]
    span = _SPAN.match(text)
    if span is None or not any(span.groups()):
        return None
    return float(sum(float(part or 0) * unit for part, unit in zip(span.groups(), (86400, 3600, 60, 1), strict=True)))


def _amount(field: str, text: str) -> float:
    """The number after an operator; :class:`FilterError` if it is not one."""
    if field == "time" and (seconds := _time(text)) is not None:
        return min(seconds, _MOST)
    match = _NUMBER.match(text)
    if match is None:
        what = "a number such as 2GiB" if field in _SIZES else "a time such as 90s or 1h30m"
        what = what if field in _SIZES or field == "time" else "a number"
        raise FilterError(f"{field} is compared with {what}" + (f", not “{_brief(text)}”" if text else ""))
    number, unit = min(float(match[1]), _MOST), match[2].lower()
    if field in _SIZES:
        suffix = _SIZE_SUFFIX.match(unit)
        if suffix is not None:
            return number * _UNITS[suffix[1]]
    elif field == "time" and unit in _TIMES:
        return number * _TIMES[unit]
    elif unit == "" or (unit == "%" and field in _PERCENTAGES):
        return number
    raise FilterError(f"“{_brief(unit)}” is not a unit of {field}")


def _unrounded(value: float) -> float:
    return value


def _compared(
    get: Callable[[Process, float], float | None],
    sign: str,
    wanted: float,
    shown: Callable[[float], float] = _unrounded,
) -> Test:
    """``shown``: rounds a value as the table does, so that the filter agrees with what is on screen."""
    wanted = shown(wanted)

    def test(process: Process, at: float) -> bool:
        value = get(process, at)
        if value is None:
            return False
        value = shown(value)
        return (value > wanted and ">" in sign) or (value < wanted and "<" in sign) or (value == wanted and "=" in sign)

    return test


def _whole(field: str, text: str, what: str) -> int:
    digits = text.lstrip("0") or text[:1]
    if not (text.isascii() and text.isdecimal()) or len(digits) > _DIGITS:
        raise FilterError(f"{field} is {what}, not “{_brief(text)}”")
    return int(digits)


def _exact(field: str, wanted: str) -> Test:
    """Tests for exact matches: numbers, and lists of them."""
    if field == "gpu" and wanted == "cpu":
        return lambda process, at: on_cpu(process)
    if field == "gpu":
        index = _whole(field, wanted, "the number of a GPU, or cpu")
        return lambda process, at: process.device_index == index
    if field == "pid":
        pid = _whole(field, wanted, "a number")
        return lambda process, at: process.pid == pid
    if field == "mig":
        return lambda process, at: (
            (process.mig_instance or "").lower() == wanted
            or (process.mig_instance is not None and process.mig_instance.lower().startswith(f"{wanted}/"))
        )
    if field == "visible":
        return lambda process, at: _lists(process.cuda_visible_devices, wanted)
    pair = _PAIR.match(wanted)
    if pair is not None:
        own, index = int(pair[1]), int(pair[2])
        return lambda process, at: any((one.ordinal, one.index) == (own, index) for one in process.device_map)
    index = _whole(field, wanted, "the number of a GPU, or 0>1 for its own device 0 on GPU 1")
    return lambda process, at: any(one.index == index for one in process.device_map)


def _lists(visible: str | None, wanted: str) -> bool:
    """Whether CUDA_VISIBLE_DEVICES lists a device, by number or UUID prefix, or equals ``wanted``."""
    if visible is None:
        return False
    named = [one.strip() for one in visible.lower().split(",")]
    if wanted.isdecimal():
        return wanted in named
    return visible.lower() == wanted or any(one.startswith(wanted) for one in named)


def _fielded(word: _Word) -> Test | None:
    """The test of a word with a field; None for a plain text search."""
    match = _SIGNED.match(word.text)
    if match is None or match.start(2) >= word.plain:
        return None
    typed, sign, rest = match.groups()
    name = _ALSO.get(typed.lower(), typed.lower())
    if name not in FIELDS:
        if rest.startswith("//"):
            return None  # http://host
        meant = closest(name, (*FIELDS, *_ALSO)) if len(name) > 2 else None
        if meant is None and sign == "=":
            return None  # part of a command line: lr=0.1
        hint = f"; did you mean {meant}?" if meant is not None else "; quote it to search for the text"
        raise FilterError(f"there is no field “{_brief(typed)}”{hint}")
    if name == "pid" and sign != ":":
        return _compared(lambda process, at: process.pid, sign, _amount(name, rest))
    if name in _NUMBERS:
        if sign == ":":
            raise FilterError(f"{name} is a number: write {name}>{_brief(rest) or '…'}")
        return _compared(_NUMBERS[name], sign, _amount(name, rest), _SHOWN.get(name, _unrounded))
    if sign != ":":
        raise FilterError(f"{name} is text: write {name}:{_brief(rest) or '…'}")
    wanted = rest.lower()
    if not wanted:
        return lambda process, at: True  # still typing
    if name in _TEXTS:
        get = _TEXTS[name]
        return lambda process, at: wanted in get(process).lower()
    return _exact(name, wanted)


def _meaning(word: _Word) -> Test:
    if word.plain > 0 and len(word.text) > 1 and word.text[0] == "-" and (word.text[1] != "-" or word.plain == 1):
        inner = _meaning(word.without_minus())
        return lambda process, at: not inner(process, at)
    fielded = _fielded(word)
    if fielded is not None:
        return fielded
    anywhere = word.text.lower()

    def test(process: Process, at: float) -> bool:
        if str(process.device_index) == anywhere or anywhere in str(process.pid):
            return True
        return any(anywhere in get(process).lower() for get in _TEXTS.values())

    return test


def field(name: str, wanted: str) -> str:
    """The filter word that matches ``wanted`` in a text field, quoted if needed."""
    return f'{name}:"{wanted}"' if any(char.isspace() for char in wanted) else f"{name}:{wanted}"


def parse(text: str) -> Filter | None:
    """The filter for ``text``, None if empty; :class:`FilterError` if a word is invalid."""
    words = list(_words(text))
    tests, kept, wrong = [], [], None
    for word in words:
        try:
            tests.append(_meaning(word))
            kept.append(word.typed)
        except FilterError as error:
            wrong = wrong or error
    if wrong is not None:
        wrong.rest = Filter(" ".join(kept), tuple(tests)) if kept else None
        raise wrong
    return Filter(text.strip(), tuple(tests)) if words else None
