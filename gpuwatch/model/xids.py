"""Xids: the numbers under which NVIDIA's driver reports errors of a GPU, and whose fault each mostly is."""

from __future__ import annotations

import msgspec

UNKNOWN = 999
"""What NVML says of an error whose number it does not know."""


class Xid(msgspec.Struct, frozen=True):
    """An error that the driver reported while somebody listened."""

    at: float
    """When it was heard, seconds since the epoch; it came up to one sample earlier."""
    code: int | None
    """NVIDIA's number; None where the driver does not know it."""

    @property
    def text(self) -> str:
        """``Xid 79 (the GPU has fallen off the bus)``."""
        if self.code is None:
            return "an error whose Xid the driver does not know"
        meaning = _HARDWARE.get(self.code) or _PROGRAM.get(self.code)
        return f"Xid {self.code} ({meaning})" if meaning else f"Xid {self.code}"

    @property
    def hardware(self) -> bool:
        """Whether it tells of the card, its link or its firmware, and not mostly of the program."""
        return self.code in _HARDWARE


# Source: NVIDIA, Xid catalog and "GPU Memory Error Management".
_HARDWARE = {
    48: "memory error that ECC could not correct",
    61: "the GPU's own controller stopped at a breakpoint",
    62: "the GPU's own controller halted",
    64: "a row of memory could not be remapped, or a page not retired",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many memory errors that ECC corrected",
    94: "memory error, contained to the programs that met it",
    95: "memory error, not contained",
    119: "the GPU's firmware (GSP) does not answer",
    120: "error in the GPU's firmware (GSP)",
    140: "memory error that ECC could not correct, unrecovered",
}
_PROGRAM = {
    13: "exception in the graphics engine, mostly a program's index out of range",
    31: "page fault, mostly a program's illegal address",
    32: "corrupted command buffer",
    43: "a program's work was stopped after its own fault",
    45: "a program's work was removed, mostly after another error",
    63: "a row of memory is to be remapped, or a page retired",
    69: "exception in the graphics engine, mostly a program's invalid command",
}
