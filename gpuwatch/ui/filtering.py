"""The filter of the process table: words that must all match, some of them with a field.

``python alice`` · ``user:alice`` · ``gpu:1`` · ``mem>2GiB`` · ``sm<5`` · ``-xorg`` (not)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

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
_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_NUMBER = re.compile(r"^(\w+)(>=|<=|>|<|=)([0-9.]+)\s*([bkmgt]?)i?b?$", re.IGNORECASE)

Test = Callable[[Process], bool]


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter as it was typed, and the tests that it means."""

    text: str
    tests: tuple[Test, ...]

    def __call__(self, process: Process) -> bool:
        """True when every word matches."""
        return all(test(process) for test in self.tests)


def _comparison(word: str) -> Test | None:
    match = _NUMBER.match(word)
    if match is None or match[1].lower() not in _NUMBER_FIELDS:
        return None
    try:
        wanted = float(match[3]) * _UNITS[match[4].lower()]
    except ValueError:
        return None
    reading, sign = _NUMBER_FIELDS[match[1].lower()], match[2]

    def test(process: Process) -> bool:
        value = process.number(reading)
        if value is None:
            return False
        return (value > wanted and ">" in sign) or (value < wanted and "<" in sign) or (value == wanted and "=" in sign)

    return test


def _word(word: str) -> Test:
    if len(word) > 1 and word[0] == "-":
        inner = _word(word[1:])
        return lambda process: not inner(process)
    comparison = _comparison(word)
    if comparison is not None:
        return comparison
    field, colon, rest = word.partition(":")
    wanted = rest.lower()
    if colon and field.lower() == "gpu":
        return lambda process: str(process.device_index) == wanted or wanted == ""
    if colon and field.lower() in _TEXT_FIELDS:
        get = _TEXT_FIELDS[field.lower()]
        return lambda process: wanted in get(process).lower()
    anywhere = word.lower()

    def test(process: Process) -> bool:
        if str(process.device_index) == anywhere:
            return True
        return any(anywhere in get(process).lower() for get in _TEXT_FIELDS.values())

    return test


def parse(text: str) -> Filter | None:
    """The filter that ``text`` means; None for an empty one."""
    words = text.split()
    return Filter(text.strip(), tuple(_word(word) for word in words)) if words else None
