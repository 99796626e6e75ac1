"""The shape of a simulated machine: how many GPUs, and how much memory each has ("2x24GiB") or its model ("2xh100")."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.units import UNIT_BYTES, exact_size, parse_size
from gpuwatch.sim.gpu_models import MODELS

MAX_DEVICES: Final = 16
MIN_MEMORY_BYTES: Final = 512 * 2**20
MAX_MEMORY_BYTES: Final = 2**40
_UNITS: Final = {unit: UNIT_BYTES[unit] for unit in ("MIB", "GIB", "TIB", "MB", "GB", "TB")}
MACHINE_NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
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
        match = _TEXT.fullmatch(text)
        if not match:
            raise _shape_error(text, "expected a number of GPUs and a memory size")
        count, amount, unit = match["count"], match["amount"], match["unit"]
        if count is not None and not re.fullmatch(r"\d{1,9}", count):
            raise _shape_error(text, "no number of GPUs before the x")
        if amount is None:
            raise _shape_error(text, "no memory size" + (" after the x" if count is not None else ""))
        if not unit:
            raise _shape_error(text, "no unit after the memory size")
        memory_bytes = parse_size(amount + unit, _UNITS)
        if memory_bytes is None:
            raise _shape_error(text, f"unknown unit {unit!r} (MiB, GiB, TiB, MB, GB, TB)")
        try:
            return cls(int(count or 1), memory_bytes)
        except UsageError as error:
            raise _shape_error(text, error.message) from None

    def __str__(self) -> str:
        return f"{self.count}x{self.model or exact_size(self.memory_bytes)}"


def parse_machine(text: str) -> tuple[SimShape, str | None]:
    """Shape and name of "2x24GiB@demo"; the name may be missing.

    Raises:
        UsageError: it is not a machine.
    """
    shape, at_sign, name = text.partition("@")
    parsed = SimShape.parse(shape)
    if at_sign and not MACHINE_NAME_PATTERN.fullmatch(name.strip()):
        raise _shape_error(text, "no name after the @ (letters, digits, dots, dashes and underscores)")
    return parsed, name.strip() or None


def parse_memory(text: str) -> int:
    """Bytes of a GPU's memory, or of a part of it: "2GiB", "1.5 GB", "512MiB".

    Raises:
        UsageError: it is not a size.
    """
    memory_bytes = parse_size(text, _UNITS)
    if memory_bytes is None:
        raise UsageError(f"{text.strip()!r} is not a memory size", hint="for example 2GiB or 512MiB")
    return memory_bytes


def _shape_error(text: str, why: str) -> UsageError:
    return UsageError(f"cannot simulate {text.strip()!r}: {why}; {_EXAMPLE}")
