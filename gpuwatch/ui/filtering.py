"""The filter of the process table: words that must all match, some of them with a field.

``python alice`` · ``user:alice`` · ``gpu:1`` · ``mem>2GiB`` · ``time>1h30m`` · ``cmd:"a b"`` · ``-xorg`` (not)

Every column of the table is a field, by its id and by its head. A word that begins like a field and cannot be
one (``mem>lots``, ``usr:alice``) is an error that is said, never a search for its letters; quotes make it one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from gpuwatch.formatting.brief import short_framework
from gpuwatch.formatting.suggest import closest
from gpuwatch.formatting.text import printable
from gpuwatch.model.snapshot import Process

Test = Callable[[Process], bool]


@lru_cache(maxsize=256)
def _names_of(framework: str) -> str:
    """A framework as it is called in full, and in each way in which the column may show it."""
    name, _, version = framework.partition(" ")
    brief = f"{'tf' if name == 'tensorflow' else name} {version}"
    return "\n".join((framework, brief, *(short_framework(framework, width) for width in range(6, 16)))).lower()


_TEXTS: dict[str, Callable[[Process], str]] = {
    "user": lambda p: p.user or "",
    "type": lambda p: p.type,
    "container": lambda p: p.container or "",
    "framework": lambda p: _names_of(p.framework) if p.framework else "",
    "cmd": lambda p: p.command or p.name or "",
}
"""What is searched for letters, wherever they stand in it."""
_NUMBERS = {
    "mem": "gpu_memory_bytes",
    "sm": "sm_percent",
    "mbw": "memory_percent",
    "enc": "encoder_percent",
    "dec": "decoder_percent",
    "cpu": "cpu_percent",
    "host": "host_memory_bytes",
    "threads": "threads",
    "time": "run_seconds",
}
"""What is compared, and the reading that it is."""
FIELDS = ("gpu", "pid", "mig", "sees", "visible", *_TEXTS, *_NUMBERS)
SIGNS = {field: ">" if field in _NUMBERS else ":" for field in FIELDS}
"""What stands between a field and what is wanted of it."""
_ALSO = {"memory": "mem", "gpu-mem": "mem", "thr": "threads", "command": "cmd"}
"""Other names: ids and heads of columns."""
_SIZES = frozenset({"mem", "host"})
_PERCENTAGES = frozenset({"sm", "mbw", "enc", "dec", "cpu"})
_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_TIMES = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_TYPED = re.compile(r'(?:[^\s"]|"[^"]*(?:"|$))+')
_SIGNED = re.compile(r"^([a-z][\w-]*)%?(>=|<=|>|<|=|:)(.*)$", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"^(\d+(?:\.\d*)?|\.\d+)([a-z%]*)$", re.IGNORECASE)
_SIZE_SUFFIX = re.compile(r"^([bkmgt]?)(?:i?b)?$", re.IGNORECASE)
_SPAN = re.compile(r"^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$", re.IGNORECASE)
_CLOCK = re.compile(r"^(?:(\d+)d\s*(\d+):(\d\d)|(\d+):(\d\d):(\d\d))$", re.IGNORECASE)
"""A time as the column shows it: ``1:30:00``, ``3d 04:05``."""
_PAIR = re.compile(r"^(\d+)(?:→|->|>)(\d+)$")


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


@dataclass(frozen=True, slots=True)
class _Word:
    typed: str
    text: str
    """Without its quotes."""
    plain: int
    """Where the first quote stood: from there on nothing is a sign."""

    def without_minus(self) -> _Word:
        return _Word(self.typed, self.text[1:], self.plain - 1)


def _words(text: str) -> Iterator[_Word]:
    """Split at blanks outside of quotes; a quote that is not closed yet goes to the end."""
    for match in _TYPED.finditer(text):
        typed = match[0]
        quote = typed.find('"')
        yield _Word(typed, typed.replace('"', ""), len(typed) if quote < 0 else quote)


def _time(text: str) -> float | None:
    clock = _CLOCK.match(text)
    if clock is not None:
        days, hours, minutes, *rest = (int(part or 0) for part in clock.groups())
        return days * 86400 + (hours + rest[0]) * 3600 + (minutes + rest[1]) * 60 + rest[2]
    span = _SPAN.match(text)
    if span is None or not any(span.groups()):
        return None
    return float(sum(int(part or 0) * unit for part, unit in zip(span.groups(), (86400, 3600, 60, 1), strict=True)))


def _amount(field: str, text: str) -> float:
    """The number behind a sign; :class:`FilterError` when it is none."""
    if field == "time" and (seconds := _time(text)) is not None:
        return seconds
    match = _NUMBER.match(text)
    if match is None:
        what = "a number such as 2GiB" if field in _SIZES else "a time such as 90s or 1h30m"
        what = what if field in _SIZES or field == "time" else "a number"
        raise FilterError(f"{field} is compared with {what}" + (f", not “{printable(text)}”" if text else ""))
    number, unit = float(match[1]), match[2].lower()
    if field in _SIZES:
        suffix = _SIZE_SUFFIX.match(unit)
        if suffix is not None:
            return number * _UNITS[suffix[1]]
    elif field == "time" and unit in _TIMES:
        return number * _TIMES[unit]
    elif unit == "" or (unit == "%" and field in _PERCENTAGES):
        return number
    raise FilterError(f"“{printable(unit)}” is no unit of {field}")


def _compared(get: Callable[[Process], float | None], sign: str, wanted: float) -> Test:
    def test(process: Process) -> bool:
        value = get(process)
        if value is None:
            return False
        return (value > wanted and ">" in sign) or (value < wanted and "<" in sign) or (value == wanted and "=" in sign)

    return test


def _whole(field: str, text: str, what: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise FilterError(f"{field} is {what}, not “{printable(text)}”")
    return int(text)


def _exact(field: str, wanted: str) -> Test:
    """What is no search for letters: numbers, and lists of them."""
    if field == "gpu":
        index = _whole(field, wanted, "the number of a GPU")
        return lambda process: process.device_index == index
    if field == "pid":
        pid = _whole(field, wanted, "a number")
        return lambda process: process.pid == pid
    if field == "mig":
        return lambda process: (
            (process.mig_instance or "").lower() == wanted
            or (process.mig_instance is not None and process.mig_instance.lower().startswith(f"{wanted}/"))
        )
    if field == "visible":
        return lambda process: _lists(process.cuda_visible_devices, wanted)
    pair = _PAIR.match(wanted)
    if pair is not None:
        own, index = int(pair[1]), int(pair[2])
        return lambda process: any((one.ordinal, one.index) == (own, index) for one in process.device_map)
    index = _whole(field, wanted, "the number of a GPU, or 0>1 for its own number 0 that is GPU 1")
    return lambda process: any(one.index == index for one in process.device_map)


def _lists(visible: str | None, wanted: str) -> bool:
    """Whether CUDA_VISIBLE_DEVICES names a device, by its number or as the beginning of its UUID; or is just this."""
    if visible is None:
        return False
    named = [one.strip() for one in visible.lower().split(",")]
    if wanted.isdecimal():
        return wanted in named
    return visible.lower() == wanted or any(one.startswith(wanted) for one in named)


def _fielded(word: _Word) -> Test | None:
    """The test of a word with a field; None for one that is searched for as it is."""
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
        hint = f"; did you mean {meant}?" if meant is not None else "; in quotes it is plain text"
        raise FilterError(f"there is no field “{printable(typed)}”{hint}")
    if name == "pid" and sign != ":":
        return _compared(lambda process: process.pid, sign, _amount(name, rest))
    if name in _NUMBERS:
        if sign == ":":
            raise FilterError(f"{name} is a number: write {name}>{printable(rest) or '…'}")
        reading = _NUMBERS[name]
        return _compared(lambda process: process.number(reading), sign, _amount(name, rest))
    if sign != ":":
        raise FilterError(f"{name} is text: write {name}:{printable(rest) or '…'}")
    wanted = rest.lower()
    if not wanted:
        return lambda process: True  # somebody is typing
    if name in _TEXTS:
        get = _TEXTS[name]
        return lambda process: wanted in get(process).lower()
    return _exact(name, wanted)


def _meaning(word: _Word) -> Test:
    if word.plain > 0 and len(word.text) > 1 and word.text[0] == "-" and (word.text[1] != "-" or word.plain == 1):
        inner = _meaning(word.without_minus())
        return lambda process: not inner(process)
    fielded = _fielded(word)
    if fielded is not None:
        return fielded
    anywhere = word.text.lower()

    def test(process: Process) -> bool:
        if str(process.device_index) == anywhere or anywhere in str(process.pid):
            return True
        return any(anywhere in get(process).lower() for get in _TEXTS.values())

    return test


def field(name: str, wanted: str) -> str:
    """The word that asks a text field for ``wanted``, in quotes where it needs them."""
    return f'{name}:"{wanted}"' if any(char.isspace() for char in wanted) else f"{name}:{wanted}"


def parse(text: str) -> Filter | None:
    """The filter that ``text`` means, None for an empty one; :class:`FilterError` for one that means nothing."""
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
