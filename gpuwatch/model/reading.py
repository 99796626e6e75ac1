"""A reading is a measured value, or the reason why there is none. Never 0, never a guess."""

from __future__ import annotations

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
    "unknown",
]
"""Why a value is missing.

``not_supported``: this device or driver has no such value, by design.
``permission_denied``: it exists, this user may not read it.
``failed``: the call failed (``code`` holds NVML's return code).
``stale``: it could be read earlier, not now.
``device_lost``: the device itself no longer answers.
``no_sample``: it needs two samples, or an activity, that has not happened yet.
``unknown``: nobody can tell from here (``detail`` says why).
"""


class Missing(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a reading has no value."""

    reason: Reason
    code: int | None = None
    """NVML's ``nvmlReturn_t`` where NVML said so."""
    detail: str = ""
    """One sentence for a person: the call, and what it answered."""


Reading = Value | Missing


def number(reading: Reading | None) -> float | None:
    """The reading as a number, or None when it is missing or a name."""
    if isinstance(reading, (int, float)):
        return float(reading)
    return None
