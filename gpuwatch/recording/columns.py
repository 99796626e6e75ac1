"""Columns of numbers in few bytes: what one reading was in each sample of a minute, exactly.

A column that did not change is its value. Whole numbers are offsets from the smallest, or from sample to sample,
divided by what all have in common; decimal fractions are whole numbers with a divisor; other floats keep their eight
bytes where they changed. Bytes of the same significance stand together, which compresses better. Nothing is rounded.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from math import gcd
from typing import Any

Number = int | float
Column = Any
"""A number, or a list that begins with one of the kinds below: plain data for MessagePack."""

_OFFSETS, _STEPS, _DECIMALS, _DOUBLES, _AS_THEY_ARE = range(5)
_CODES = ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))
_FRACTIONS: tuple[tuple[float, Callable[[float], float]], ...] = (
    (1.0, float),
    (10.0, lambda whole: whole / 10.0),
    (1e3, lambda whole: whole * 1e-3),  # how NVML's thousandths become watts
    (1e3, lambda whole: whole / 1e3),
    (100.0, lambda whole: whole / 100.0),
    (1e6, lambda whole: whole / 1e6),
)
_MOST_WHOLE = 2.0**53
_MOST_APART = 2**63
"""MessagePack has no larger numbers with a sign."""


class DamagedColumn(ValueError):
    """Not a column of this version."""


def pack(values: Sequence[Number]) -> Column:
    """The column of these values, all of them numbers, at least one."""
    first = values[0]
    kinds = set(map(type, values))
    if kinds == {int}:
        return first if values.count(first) == len(values) else _whole(values)  # type: ignore[arg-type]
    if kinds == {float}:
        doubles = array("d", values)
        if doubles == array("d", [first]) * len(values) and len(set(_bits(doubles))) == 1:
            return first
        return _floats(doubles)
    return [_AS_THEY_ARE, list(values)]


def unpack(column: Column, count: int) -> Sequence[Number]:
    """The values of a column with ``count`` samples; :class:`DamagedColumn`."""
    if not isinstance(column, list):
        return [column] * count
    try:
        values = _unpacked(column, count)
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        raise DamagedColumn(str(error)) from error
    if len(values) != count:
        raise DamagedColumn(f"{len(values)} values of {count}")
    return values


def _unpacked(column: list[Any], count: int) -> Sequence[Number]:
    kind = column[0]
    if kind == _OFFSETS:
        _, least, apart, data = column
        return [least + apart * offset for offset in _joined(data, count)]
    if kind == _STEPS:
        _, first, least, apart, data = column
        return list(accumulate((least + apart * offset for offset in _joined(data, count - 1)), initial=first))
    if kind == _DECIMALS:
        _, number, whole = column
        _, value = _FRACTIONS[number]
        return [value(one) for one in unpack(whole, count)]
    if kind == _DOUBLES:
        _, changes, data = column
        changed = bin(int.from_bytes(changes, "little"))[:1:-1].ljust(count, "0")
        kept = array("d", _bytes(array("Q", _joined(data, changed.count("1")))))
        following, values, last = iter(kept), [], 0.0
        for mark in changed[:count]:
            if mark == "1":
                last = next(following)
            values.append(last)
        return values
    if kind == _AS_THEY_ARE:
        return list(column[1])
    raise ValueError(f"kind {kind!r}")


def _whole(values: Sequence[int]) -> Column:
    least = min(values)
    offsets = [value - least for value in values]
    apart = gcd(*offsets)
    steps = [after - before for before, after in pairwise(values)]
    slowest = min(steps)
    grown = [step - slowest for step in steps]
    between = gcd(*grown) or 1
    width, step_width = _width(max(offsets) // apart), _width(max(grown) // between)
    if not width or apart >= _MOST_APART:
        return [_AS_THEY_ARE, list(values)]
    fits = step_width and between < _MOST_APART and -_MOST_APART < slowest < _MOST_APART
    if fits and (step_width < width or (step_width == width and len(set(steps)) < len(set(values)) / 2)):
        return [_STEPS, values[0], slowest, between, _split([step // between for step in grown], step_width)]
    return [_OFFSETS, least, apart, _split([offset // apart for offset in offsets], width)]


def _floats(values: array[float]) -> Column:
    if max(values) < _MOST_WHOLE and min(values) > -_MOST_WHOLE:
        for number, (factor, value) in enumerate(_FRACTIONS):
            try:
                if value(round(values[-1] * factor)) != values[-1]:
                    continue
                wholes = [round(one * factor) for one in values]
            except (ValueError, OverflowError):  # NaN and infinity
                break
            if not -_MOST_APART < min(wholes) <= max(wholes) < _MOST_APART:
                continue
            # Compared as bytes: -0.0 is not 0.0.
            if array("d", map(value, wholes)).tobytes() == values.tobytes():
                return [_DECIMALS, number, pack(wholes)]
    bits = _bits(values)
    marks = [True, *(after != before for before, after in pairwise(bits))]
    changes = sum(1 << place for place, mark in enumerate(marks) if mark)
    changed = [one for one, mark in zip(bits, marks, strict=True) if mark]
    return [_DOUBLES, changes.to_bytes((len(marks) + 7) // 8, "little"), _split(changed, 8)]


def _bits(values: array[float]) -> array[int]:
    return array("Q", values.tobytes())


def _bytes(values: array[Any]) -> bytes:
    return values.tobytes()


def _width(most: int) -> int:
    """Bytes for numbers up to ``most``; 0 if eight are too few."""
    return next((width for width, _ in _CODES if most < 1 << 8 * width), 0)


def _split(numbers: Sequence[int], width: int) -> bytes:
    """The numbers, all lowest bytes first; the width follows from the length."""
    if width == 1:
        return bytes(numbers)
    data = array(dict(_CODES)[width], numbers)
    if sys.byteorder == "big":
        data.byteswap()
    raw = data.tobytes()
    return b"".join(raw[place::width] for place in range(width))


def _joined(data: bytes, count: int) -> Sequence[int]:
    if not count:
        return ()
    width, rest = divmod(len(data), count)
    if rest or width not in dict(_CODES):
        raise ValueError(f"{len(data)} bytes for {count} numbers")
    if width == 1:
        return data
    raw = bytearray(len(data))
    for place in range(width):
        raw[place::width] = data[place * count : (place + 1) * count]
    numbers = array(dict(_CODES)[width], bytes(raw))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
