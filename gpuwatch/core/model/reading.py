"""A reading is a measured value, or the reason why there is none; never 0 or a guess instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Value = int | float | str
"""A measured value. Numbers carry the unit of their metric; strings are names (``P0``, ``default``)."""

Reason = Literal[
    "not_supported",
    "permission_denied",
    "failed",
    "stale",
    "device_lost",
    "no_sample",
    "implausible",
    "unknown",
]
"""Why a value is missing.

``not_supported``: this device or driver does not have the value, by design.
``permission_denied``: it exists, but this user may not read it.
``failed``: the call failed (``code`` is NVML's return code).
``stale``: it could be read before, but not now.
``device_lost``: the device no longer answers.
``no_sample``: it needs two samples, or activity, which there was not yet.
``implausible``: the driver answered with a value that no GPU can have.
``unknown``: it cannot be known from here (``detail`` says why).
"""


class Missing(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a reading has no value."""

    reason: Reason
    code: int | None = None
    """NVML's ``nvmlReturn_t``, if the reason is from NVML."""
    detail: str = ""
    """One sentence: the call and its answer."""

    @property
    def permanent(self) -> bool:
        """Whether waiting does not help."""
        return self.reason in ("not_supported", "permission_denied", "unknown")


Reading = Value | Missing


def number(reading: Reading | None) -> float | None:
    """The reading as a number; None if it is missing or a name."""
    if isinstance(reading, (int, float)):
        return float(reading)
    return None


def fraction(value: float | None, whole: float | None) -> float | None:
    """``value / whole``; None if either is unknown or the whole is zero."""
    return value / whole if value is not None and whole else None


def max_known(values: Iterable[float | None]) -> float | None:
    """The largest of the values that are known; None if none is."""
    return max((value for value in values if value is not None), default=None)
