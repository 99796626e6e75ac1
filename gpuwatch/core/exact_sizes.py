"""Sizes in bytes as people type them: read, and written so that they are read back unchanged."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
    """``24GiB``, ``80GB``, ``1536MiB``: in the largest unit, from MB on, that needs no decimals."""
    for unit in ("TiB", "GiB", "TB", "GB", "MiB", "MB"):
        if count % UNIT_BYTES[unit.upper()] == 0:
            return f"{count // UNIT_BYTES[unit.upper()]}{unit}"
    return f"{count / 2**20:.10g}MiB"
