"""Xids: the numbers of GPU errors that NVIDIA's driver reports, and whether card or program is usually at fault."""

from __future__ import annotations

import msgspec

UNKNOWN = 999
"""NVML's number for an unknown Xid."""


class Xid(msgspec.Struct, frozen=True):
    """An error that the driver reported while gpuwatch was listening."""

    at: float
    """When it was received, in seconds since the epoch; it occurred up to one sample earlier."""
    code: int | None
    """NVIDIA's number; None if the driver does not know it."""

    @property
    def text(self) -> str:
        """``Xid 79 (the GPU has fallen off the bus)``."""
        if self.code is None:
            return "an error with an unknown Xid"
        meaning = _HARDWARE.get(self.code) or _PROGRAM.get(self.code)
        return f"Xid {self.code} ({meaning})" if meaning else f"Xid {self.code}"

    @property
    def hardware(self) -> bool:
        """Whether it points to the card, its link or its firmware rather than the program."""
        return self.code in _HARDWARE


# Source: NVIDIA, Xid catalog and "GPU Memory Error Management".
_HARDWARE = {
    48: "double-bit ECC error",
    61: "the GPU's internal controller stopped at a breakpoint",
    62: "the GPU's internal controller halted",
    64: "row remapping or page retirement failed",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "high rate of corrected ECC errors",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "GSP firmware timeout",
    120: "GSP firmware error",
    140: "unrecovered ECC error",
}
_PROGRAM = {
    13: "graphics engine exception, usually a program's index out of range",
    31: "page fault, usually a program's illegal address",
    32: "corrupted command buffer",
    43: "a program's work was stopped after its own fault",
    45: "a program's work was removed, usually after another error",
    63: "row remapping or page retirement recorded",
    69: "graphics engine exception, usually a program's invalid command",
}
