"""Numbers with units as text; unknown values as ``–``. Sizes in bytes are also read, as people type them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

UNKNOWN = "–"
"""What stands for a value that is not known."""

_MIB = 1024**2
_GIB = 1024**3
_MAX_SHOWN_MIB = 1000
"""MiB from which a process's memory is shown in GiB, as by :func:`size`."""
_MIN_SHOWN_GIB_BYTES = 0.1 * _GIB
"""A tenth of a GiB, the least that one decimal can show: a client with a window or two holds 4 to 50 MiB."""

_MIN_SHOWN_RATE = 0.05e9
"""Bytes per second below which one decimal of GB/s shows 0.0."""


def _scaled(amount: float, units: Sequence[str], step: int, decimals: Callable[[float, str], int]) -> str:
    """The amount in the first unit in which it is below 1000, else in the last."""
    for unit in units:
        places = decimals(abs(amount), unit)
        if round(abs(amount), places) < 1000:
            return f"{amount:.{places}f}{unit}"
        amount /= step
    return f"{amount * step:.0f}{units[-1]}"


def size(count: float | None) -> str:
    """Bytes as people write them: ``139.8 GiB``, ``33.0 GiB``, ``512 MiB``; from GiB on always with one decimal.

    Every column of memory has one decimal of a GiB, so that the same amount reads the same everywhere.
    """
    if count is None:
        return UNKNOWN
    return _scaled(count, (" B", " KiB", " MiB", " GiB", " TiB", " PiB"), 1024, _size_decimals)


def _size_decimals(amount: float, unit: str) -> int:
    return 0 if unit == " B" or (amount >= 99.95 and unit in (" KiB", " MiB")) else 1


def gib_number(count: float | None) -> str:
    """Bytes in GiB with one decimal, for columns that must line up; ``<0.1`` for little but not none."""
    if count is None:
        return UNKNOWN
    return "<0.1" if 0 < count < _MIN_SHOWN_GIB_BYTES / 2 else f"{count / _GIB:.1f}"


def short_gib(count: float | None) -> str:
    """:func:`gib_number` with its unit, ``33.0G``; at most six characters, so TiB from 1000 GiB on."""
    return short_size(count) if count is None or count >= _GIB else f"{gib_number(count)}G"


def gib(count: float | None) -> str:
    """:func:`gib_number` with its unit, for tables: ``0.6 GiB``."""
    return UNKNOWN if count is None else f"{gib_number(count)} GiB"


def memory(count: float | None, most: float | None = None, *, short: bool = False) -> str:
    """The memory of a process: ``130.4 GiB``, or ``130.4G``; if little ``614 MiB``, or ``614M``.

    In a column, all are in the unit of its largest, ``most``. 0 means none.
    """
    if count is None:
        return UNKNOWN
    largest = max(count, most or 0.0)
    if largest < _MIB:
        return short_size(count) if short else size(count)
    if round(largest / _MIB) < _MAX_SHOWN_MIB:
        return f"{'<1' if 0 < count <= _MIB / 2 else round(count / _MIB)}{'M' if short else ' MiB'}"
    return short_gib(count) if short else gib(count)


def shown_memory(count: float) -> float:
    """The amount that :func:`memory` shows for ``count`` bytes, to compare what users see."""
    if count < _MIB:
        return count
    whole = round(count / _MIB)
    return float(whole * _MIB) if whole < _MAX_SHOWN_MIB else round(count / _GIB, 1) * _GIB


def short_size(count: float | None) -> str:
    """Bytes in at most six characters: ``33.0G``, ``512M``."""
    if count is None:
        return UNKNOWN
    return _scaled(count, ("B", "K", "M", "G", "T", "P"), 1024, lambda amount, unit: 1 if unit in "GTP" else 0)


def byte_rate(per_second: float | None) -> str:
    """Bytes per second in decimal units, as links are sold and as NVML counts: ``1.2 GB/s``, ``278 MB/s``."""
    if per_second is None:
        return UNKNOWN
    units = (" B/s", " kB/s", " MB/s", " GB/s", " TB/s")
    return _scaled(per_second, units, 1000, lambda amount, unit: 0 if unit == " B/s" or amount >= 99.95 else 1)


def whole_number(value: float | None, width: int) -> str:
    """A number without decimals, right-aligned in ``width`` cells."""
    return f"{UNKNOWN if value is None else format(value, '.0f'):>{width}}"


def gigabytes_per_second(value: float | None, width: int) -> str:
    """A rate in GB/s with one decimal, right-aligned in ``width`` cells; ``<0.1`` for little but not none."""
    shown = UNKNOWN if value is None else "<0.1" if 0 < value < _MIN_SHOWN_RATE else f"{value / 1e9:.1f}"
    return f"{shown:>{width}}"


def percent(value: float | None) -> str:
    """``97 %``, with a space."""
    return UNKNOWN if value is None else f"{value:.0f} %"


def count_rate(value: float | None) -> str:
    """Steps or examples per second, without a unit, with three digits: ``412``, ``40.9``, ``3.10``."""
    if value is None:
        return UNKNOWN
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def energy(joules: float | None, most: float | None = None) -> str:
    """Energy: ``812 J``, ``12.3 Wh``, ``4.56 kWh``; in a column, all in the unit of its largest, ``most``."""
    if joules is None:
        return UNKNOWN
    largest = max(joules, most or 0.0)
    each, unit, places = (1, "J", 0) if largest < 3600 else (3600, "Wh", 1) if largest < 3.6e6 else (3.6e6, "kWh", 2)
    least = 10.0**-places
    return f"<{least:g} {unit}" if 0 < joules / each < least / 2 else f"{joules / each:.{places}f} {unit}"


def flops(value: float | None) -> str:
    """Floating-point operations per second: ``35.1 GFLOP/s``."""
    if value is None:
        return UNKNOWN
    return _scaled(value, (" FLOP/s", " kFLOP/s", " MFLOP/s", " GFLOP/s", " TFLOP/s"), 1000, lambda amount, unit: 1)


UNIT_BYTES = {
    **{"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    **{"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40},
}
"""Bytes in each unit, by its name in capitals."""
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_MAX_AMOUNT = 1e15
"""Larger amounts count as this one: a float has no room for some, and it exceeds every maximum."""


def parse_size(text: str, units: Mapping[str, int] = UNIT_BYTES) -> int | None:
    """Bytes of ``1.5 GB`` or ``512MiB``; None if it is not an amount with one of these units, in any case."""
    match = _SIZE.fullmatch(text)
    unit = units.get(match[2].upper()) if match is not None else None
    return None if match is None or unit is None else round(min(float(match[1]), _MAX_AMOUNT) * unit)


def exact_size(count: int) -> str:
    """``24GiB``, ``80GB``, ``1536MiB``: in the largest unit, from MB on, that needs no decimals, and so read back."""
    for unit in ("TiB", "GiB", "TB", "GB", "MiB", "MB"):
        if count % UNIT_BYTES[unit.upper()] == 0:
            return f"{count // UNIT_BYTES[unit.upper()]}{unit}"
    return f"{count / 2**20:.10g}MiB"
