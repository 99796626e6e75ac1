"""The shape of a simulated machine: how many GPUs, and how much memory each has ("2x24GiB") or its model ("2xh100")."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from gpuwatch.core.errors import UsageError
from gpuwatch.sim.gpu_models import MODELS

MAX_DEVICES: Final = 16
MIN_MEMORY_BYTES: Final = 512 * 2**20
MAX_MEMORY_BYTES: Final = 2**40
_UNIT_BYTES: Final = {
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
MACHINE_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_EXAMPLE: Final = "for example 2x24GiB (two GPUs of 24 GiB) or 8GiB (one)"
_MODEL: Final = re.compile(r"\s*(?:(\d{1,9})\s*[x×*]\s*)?([a-z0-9]+)\s*")
_TEXT: Final = re.compile(
    r"""\s* (?: (?P<count>[^\s×xX*]*) \s* [xX×*] \s* )?  # 2x
        (?P<amount>\d+(?:\.\d+)?)? \s* (?P<unit>[a-zA-Z]*) \s*""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class SimShape:
    """A simulated machine's GPUs, all alike."""

    count: int
    memory_bytes: int
    model: str = ""
    """A key of MODELS; empty: plain simulated GPUs."""

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_DEVICES:
            raise UsageError(f"{self.count} simulated GPUs: the number must be from 1 to {MAX_DEVICES}", hint=_EXAMPLE)
        if self.memory_bytes < MIN_MEMORY_BYTES:
            raise UsageError(
                f"{self.memory_bytes / 2**20:g} MiB for a simulated GPU: the minimum is 512 MiB",
                hint=_EXAMPLE,
            )
        if self.memory_bytes > MAX_MEMORY_BYTES:
            raise UsageError(
                f"{self.memory_bytes / 2**40:g} TiB for a simulated GPU: the maximum is 1 TiB",
                hint=_EXAMPLE,
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "2x24GiB", "24GiB", "4 x 80 GB" (units MiB GiB TiB MB GB TB, in any case), "2xh100"."""
        named = _MODEL.fullmatch(text.lower())
        if named and named[2] in MODELS:
            return cls(int(named[1] or 1), MODELS[named[2]].memory_bytes, named[2])
        found = _TEXT.fullmatch(text)
        if not found:
            raise _shape_error(text, "expected a number of GPUs and a memory size")
        count, amount, unit = found["count"], found["amount"], found["unit"].lower()
        if count is not None and not re.fullmatch(r"\d{1,9}", count):
            raise _shape_error(text, "no number of GPUs before the x")
        if amount is None:
            raise _shape_error(text, "no memory size" + (" after the x" if count is not None else ""))
        if not unit:
            raise _shape_error(text, "no unit after the memory size")
        if unit not in _UNIT_BYTES:
            raise _shape_error(text, f"unknown unit {found['unit']!r} (MiB, GiB, TiB, MB, GB, TB)")
        try:
            return cls(int(count or 1), _bytes(amount, unit))
        except UsageError as error:
            raise _shape_error(text, error.message) from None

    @property
    def memory_label(self) -> str:
        """The memory of one GPU as text that `parse` reads back: 24GiB, 80GB, 1536MiB."""
        for name in ("TiB", "GiB", "TB", "GB", "MiB", "MB"):
            if self.memory_bytes % _UNIT_BYTES[name.lower()] == 0:
                return f"{self.memory_bytes // _UNIT_BYTES[name.lower()]}{name}"
        return f"{self.memory_bytes / 2**20:.10g}MiB"

    def __str__(self) -> str:
        return f"{self.count}x{self.model or self.memory_label}"


def parse_machine(text: str) -> tuple[SimShape, str | None]:
    """Shape and name of "2x24GiB@demo"; the name may be missing.

    Raises:
        UsageError: it is not a machine.
    """
    shape, named, name = text.partition("@")
    parsed = SimShape.parse(shape)
    if named and not MACHINE_NAME.fullmatch(name.strip()):
        raise _shape_error(text, "no name after the @ (letters, digits, dots, dashes and underscores)")
    return parsed, name.strip() or None


def parse_size(text: str) -> int:
    """Bytes of a size with its unit: "2GiB", "1.5 GB", "512MiB".

    Raises:
        UsageError: it is not a size.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*", text)
    if not found or found[2].lower() not in _UNIT_BYTES:
        raise UsageError(f"{text.strip()!r} is not a memory size", hint="for example 2GiB or 512MiB")
    return _bytes(found[1], found[2].lower())


def _bytes(amount: str, unit: str) -> int:
    """Limited, so that a number too large for a float exceeds the maximum instead of failing."""
    return round(min(float(amount), 1e15) * _UNIT_BYTES[unit])


def _shape_error(text: str, why: str) -> UsageError:
    return UsageError(f"cannot simulate {text.strip()!r}: {why}; {_EXAMPLE}")
