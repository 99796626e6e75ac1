"""Sizes in texts, as bytes: of an amount with its unit, as in ``2.25GiB``, and of a tensor, by its shape and type."""

from __future__ import annotations

import re

_SIZE = re.compile(r"^\**([\d.]+)\s*(B|bytes|[KMGTP]i?B?)?\**$", re.IGNORECASE)
_MAX_BYTES = float(1 << 70)
"""Larger numbers are not sizes."""
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}

DTYPE_BYTES = {
    "float": 4, "float32": 4, "half": 2, "float16": 2, "bfloat16": 2, "double": 8, "float64": 8, "float8_e5m2": 1,
    "float8_e4m3fn": 1, "int8": 1, "uint8": 1, "qint8": 1, "quint8": 1, "bool": 1, "int16": 2, "uint16": 2, "int32": 4,
    "uint32": 4, "int64": 8, "uint64": 8, "complex64": 8, "complex128": 16, "resource": 8, "string": 24,
}  # fmt: skip
"""Bytes of one element, by TensorFlow's name of its type, and the names that its log lines have."""


def size_bytes(text: str) -> int | None:
    """Bytes of ``2.25GiB``, ``496.00 MiB``, ``7.81G``, ``268435456``, ``0B``; None for anything else."""
    match = _SIZE.match(text.strip())
    if match is None:
        return None
    try:
        amount = float(match[1]) * _UNITS.get((match[2] or "")[:1].upper(), 1)
    except ValueError:
        return None
    return int(amount) if amount < _MAX_BYTES else None


def tensor_bytes(shape: str, dtype: str | None) -> int | None:
    """Bytes of ``shape[16,112,112,147] and type float``; None if a part is unknown."""
    width = DTYPE_BYTES.get((dtype or "float").removeprefix("DT_").lower())
    if width is None:
        return None
    total = width
    for part in shape.split(","):
        part = part.strip()
        if not part:
            continue
        if not part.isdecimal() or len(part) > 15:
            return None
        total *= int(part)
        if total > _MAX_BYTES:
            return None
    return total
