"""Checks of a document beyond its field types: limits, and references that must be consistent."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from gpuwatch.core import reader_limits
from gpuwatch.core.model.run_comparison import Comparison

MAX_VALUES = 2_000_000
"""Maximum number of values and commas: memory use grows with them."""
MAX_TEXT_CHARS = 1 << 20
"""Maximum characters of one text."""
_YEARS = range(1970, 9000)
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64
"""Range of NVML's and the frameworks' integers; msgspec reads larger ones but cannot write them."""
_MAX_SECONDS = 1e10
"""Three hundred years; longer spans overflow."""


class Inconsistent(ValueError):
    """The document contradicts itself or exceeds a limit; the message says how."""


def check_document(document: msgspec.Struct, *, numbers: bool = True) -> None:
    """Raises :class:`Inconsistent` unless depth, texts, times, numbers and references are valid.

    ``numbers=False`` skips the check of every number, if all are known to have 64 bits.
    """
    _check(document, 1, numbers)


def _check(value: Any, depth: int, numbers: bool) -> None:
    if isinstance(value, str):
        if len(value) > MAX_TEXT_CHARS:
            raise Inconsistent(f"it has a string of more than {MAX_TEXT_CHARS:,} characters")
        return
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None or value.year not in _YEARS:
            years = f"{_YEARS[0]} to {_YEARS[-1]}"
            raise Inconsistent(f"{value.isoformat()} is not a time with a zone in the years {years}")
        return
    if isinstance(value, (int, float)):
        if not _MIN_INTEGER <= value < _MAX_INTEGER and not isinstance(value, float):
            raise Inconsistent("it has a whole number of more than 64 bits")
        return
    if value is None or value is msgspec.UNSET:
        return
    if depth > reader_limits.DOCUMENT.depth:
        raise Inconsistent(reader_limits.DOCUMENT.too_deep)
    if isinstance(value, msgspec.Struct):
        fields, times = _fields(type(value), numbers)
        for name in times:
            seconds = getattr(value, name)
            if isinstance(seconds, (int, float)) and abs(seconds) > _MAX_SECONDS:
                raise Inconsistent(f"{name} is {seconds:g}: not a valid time span")
        for name in fields:
            _check(getattr(value, name), depth + 1, numbers)
        if isinstance(value, Comparison):
            _check_references(value)
        return
    if isinstance(value, dict):
        for name in value:
            _check(name, depth, numbers)
        value = value.values()
    for item in value:
        _check(item, depth + 1, numbers)


@cache
def _fields(kind: type[msgspec.Struct], numbers: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields of a type to check, and those that are time spans."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    checked = tuple(field.name for field in info.fields if numbers or not _is_number(field.type))
    return checked, tuple(field.name for field in info.fields if re.search(r"seconds$|(^|_)hours(_|$)", field.name))


def _is_number(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.UnionType):
        return all(map(_is_number, kind.types))
    return isinstance(kind, (inspect.IntType, inspect.FloatType, inspect.BoolType, inspect.NoneType))


def _check_references(document: Comparison) -> None:
    named: list[Iterable[int]] = [document.comparable, document.best_run.values(), document.worst_run.values()]
    named += [(difference.run, difference.against) for difference in document.differences]
    for numbers in named:
        for number in numbers:
            if not 0 <= number < len(document.runs):
                raise Inconsistent(f"it refers to run {number} but has {len(document.runs)}, counted from 0")
