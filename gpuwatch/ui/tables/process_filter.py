"""The filter of the process table, in the language of :mod:`gpuwatch.ui.tables.filter_language`.

``python alice`` · ``user:alice`` · ``gpu:1`` · ``mem>2GiB`` · ``time>1h30m`` · ``cmd:"a b"`` · ``-xorg`` (not)

Every column of the table is a field, by its id and by its header.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache

from gpuwatch.core.formatting.units import shown_memory
from gpuwatch.core.model.snapshot import Process
from gpuwatch.machine.history.process_labels import short_framework
from gpuwatch.ui.tables import filter_language as language
from gpuwatch.ui.tables.filter_language import FilterFields, Kind, NumberField, parse_integer
from gpuwatch.ui.tables.process_columns import COLUMNS, Column, is_on_cpu

ProcessTest = Callable[[Process, float], bool]
"""Test of a process at a moment, in seconds since the epoch."""
ProcessFilter = language.Filter[[Process, float]]


@lru_cache(maxsize=256)
def _names_of(framework: str) -> str:
    """A framework's full name and every form in which the column may show it."""
    name, _, version = framework.partition(" ")
    brief = f"{'tf' if name == 'tensorflow' else name} {version}"
    return "\n".join((framework, brief, *(short_framework(framework, width) for width in range(6, 16)))).lower()


def _gpu_test(wanted: str) -> ProcessTest:
    if wanted == "cpu":
        return lambda process, moment: is_on_cpu(process)
    index = parse_integer("gpu", wanted, "the number of a GPU, or cpu")
    return lambda process, moment: process.device_index == index


_DEVICE_PAIR = re.compile(r"^(\d{1,18})(?:→|->|>)(\d{1,18})$")


def _sees_test(wanted: str) -> ProcessTest:
    pair = _DEVICE_PAIR.match(wanted)
    if pair is not None:
        own, index = int(pair[1]), int(pair[2])
        return lambda process, moment: any((m.ordinal, m.index) == (own, index) for m in process.device_map)
    index = parse_integer("sees", wanted, "the number of a GPU, or 0>1 for its own device 0 on GPU 1")
    return lambda process, moment: any(mapping.index == index for mapping in process.device_map)


def _is_listed(visible: str | None, wanted: str) -> bool:
    """Whether CUDA_VISIBLE_DEVICES lists a device, by number or UUID prefix, or equals ``wanted``."""
    if visible is None:
        return False
    named = [text.strip() for text in visible.lower().split(",")]
    if wanted.isdecimal():
        return wanted in named
    return visible.lower() == wanted or any(text.startswith(wanted) for text in named)


_EXACT = {
    "gpu": _gpu_test,
    "mig": lambda wanted: lambda process, moment: f"{process.mig_instance or ''}/".lower().startswith(f"{wanted}/"),
    "sees": _sees_test,
    "visible": lambda wanted: lambda process, moment: _is_listed(process.cuda_visible_devices, wanted),
}
_SHORT_NAMES = {"memory": "mem", "container": "job", "command": "cmd"}
"""Fields that are shorter than the ids of their columns, which are fields too."""
_KINDS: dict[str, Kind] = {"GiB": "size", "%": "percent", "time": "time"}
_ROUNDING: dict[str, Callable[[float], float]] = {
    "memory": shown_memory,
    "cpu": float,
    "host": float,
    "time": math.floor,
    "idle": math.floor,
}
"""How columns round; the others show no digits after the point."""
_SEARCHED_TEXTS: dict[str, Callable[[Process], str | None]] = {
    "framework": lambda process: _names_of(process.framework) if process.framework else "",
    "command": lambda process: process.command or process.name,
}
"""Texts that are more than their columns show."""


def _field_name(column: Column) -> str:
    return _SHORT_NAMES.get(column.id, column.id)


def _text_getter(column: Column) -> Callable[[Process, float], str]:
    get = _SEARCHED_TEXTS.get(column.id, column.value_of)
    return lambda process, moment: str(get(process) or "")


def _number_field(column: Column) -> NumberField[[Process, float]]:
    def get(process: Process, moment: float) -> float | None:
        if column.seconds is not None:
            return column.seconds(process, moment)
        value = column.value_of(process)
        return None if value is None else float(value)

    return NumberField(get, _KINDS.get(column.unit, "count"), _ROUNDING.get(column.id, round))


_PLAIN_COLUMNS = tuple(column for column in COLUMNS if column.id not in (*_EXACT, "pid"))
_TEXT_FIELDS = {_field_name(column): _text_getter(column) for column in _PLAIN_COLUMNS if not column.number}


def _anywhere(wanted: str) -> ProcessTest:
    def test(process: Process, moment: float) -> bool:
        if str(process.device_index) == wanted or wanted in str(process.pid):
            return True
        return any(wanted in get(process, moment).lower() for get in _TEXT_FIELDS.values())

    return test


_FIELDS: FilterFields[[Process, float]] = FilterFields(
    texts=_TEXT_FIELDS,
    numbers={_field_name(column): _number_field(column) for column in _PLAIN_COLUMNS if column.number},
    anywhere=_anywhere,
    exact=_EXACT,
    ids={"pid": lambda process, moment: process.pid},
    aliases={
        name: _field_name(column)
        for column in COLUMNS
        for name in (column.id, column.title.lower().rstrip("%"))
        if name != _field_name(column)
    },
)
FIELDS = tuple(map(_field_name, COLUMNS))
FIELD_OPERATORS = {field: ">" if field in _FIELDS.numbers else ":" for field in FIELDS}
"""The operator between a field and its value."""
_NUMBER_FIELDS = [name for name, amount in _FIELDS.numbers.items() if amount.kind != "time" and name != "mem"]
_TIME_FIELDS = [name for name, amount in _FIELDS.numbers.items() if amount.kind == "time"]
FILTER_WORDS = (
    ("python train", "both words, anywhere"),
    ('"a b"', "this exact text, with spaces and symbols"),
    ("user:al", f"contains; {', '.join(name for name in _TEXT_FIELDS if name != 'user')}"),
    ("gpu:1", "equals; pid, mig. In: visible, sees"),
    ("mem>2GiB", f"< = >= <=; {' '.join(_NUMBER_FIELDS)}, {' '.join(reversed(_TIME_FIELDS))}>1m"),
    ("-xorg", "does not match; works with all of these"),
)
"""Words of a filter and what they do, which name every field."""


def filter_word(name: str, wanted: str) -> str:
    """The filter word that matches ``wanted`` in a text field, quoted if needed."""
    return f'{name}:"{wanted}"' if any(char.isspace() for char in wanted) else f"{name}:{wanted}"


def parse_process_filter(text: str) -> ProcessFilter | None:
    """The filter for ``text``, None if empty; :class:`FilterError` if a word is invalid."""
    return language.parse(text, _FIELDS)
