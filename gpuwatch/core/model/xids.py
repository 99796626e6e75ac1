"""Xids: the numbers of GPU errors that NVIDIA's driver reports: what they mean, who is usually to blame, what to do.

Source: NVIDIA, "Analyzing Xid Errors with the Xid Catalog" (drivers up to r610; its resolution buckets), and "GPU
Memory Error Management"; 109 is an application's error for NVIDIA's device plugin (internal/rm/health.go). Numbers
that the catalog lists as unused are from the older list of Xids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from gpuwatch.core.model.findings import END_WORK

UNKNOWN = 999
"""NVML's number for an unknown Xid."""

Blame = Literal["program", "driver", "hardware", "link", "nobody"]
"""Who is usually at fault: ``driver`` includes the GPU's firmware, ``nobody`` a note of what another Xid caused."""

_PROGRAM = (
    "Run the program again with CUDA_LAUNCH_BLOCKING=1, which shows the op, or under compute-sanitizer, which names the"
    " kernel; the step on the CPU names a wrong index. Suspect the card only if other programs fail on it too."
)
_RESTART_PROGRAM = "Restart the program; if it also happens with other programs, reset the GPU (nvidia-smi -r)."
_RESET = (
    f"{END_WORK} this GPU and reset it (nvidia-smi -r), or restart the machine; if it happens again, have the "
    "card, its power and its seating checked."
)
_RESTART_MACHINE = (
    "Restart the machine, turning the power off if that is not enough: a GPU that is not on the bus cannot be reset. "
    "If it happens again, have its power, its seating and the card checked."
)
_DIAGNOSE = (
    f"{END_WORK} this GPU and reset it (nvidia-smi -r); if it happens again, run NVIDIA's field diagnostic "
    "(dcgmi diag -r"
    " 3), or have the card replaced."
)
_LINKS = (
    f"{END_WORK} the GPUs of this NVLink and reset them together (nvidia-smi -r), or restart the machine; if it "
    "happens again, check nvidia-smi nvlink -e, the fabric manager's log, and the cables or bridges."
)
_UPDATE = "Reset the GPU (nvidia-smi -r) or restart the machine; update the driver if it happens again."
_NOTHING_TO_DO = "Nothing to do now: the driver corrected it. Reset the GPU (nvidia-smi -r) when its work allows."
_POWER = "Connect the power cables of the card, and check the power supply."
_SEE_PREVIOUS = "Look at the previous error: this one is its consequence, or the program was ended (Ctrl+C, kill)."
_READ_MESSAGE = "Read the action in the message: there the driver says what this GPU needs."


class XidKind(NamedTuple):
    """What an Xid means."""

    meaning: str
    blame: Blame
    action: str


def _kinds(blame: Blame, action: str, **meanings: str) -> dict[int, XidKind]:
    return {int(code[1:]): XidKind(meaning, blame, action) for code, meaning in meanings.items()}


def _engine_kinds(name: str, *codes: int) -> dict[int, XidKind]:
    return {code: XidKind(f"exception of a {name}", "program", _RESTART_PROGRAM) for code in codes}


KINDS: dict[int, XidKind] = {
    **_kinds(
        "program",
        _PROGRAM,
        x11="invalid or corrupted command stream",
        x13="graphics engine exception, usually a program's index out of range",
        x25="invalid or illegal command stream",
        x31="page fault, usually a program's illegal address",
        x69="graphics engine exception, usually a program's invalid command",
        x137="illegal access to the memory of another GPU over NVLink, usually a program's",
    ),
    **_kinds(
        "program",
        _RESTART_PROGRAM,
        x8="a program's work did not finish in time",
        x32="corrupted command buffer",
        x43="a program's work was stopped after its own fault",
        x80="corrupted data sent to the GPU",
        x109="context switch timeout: usually a program's work did not release the GPU",
        x141="fault in CUDA's fast path",
    ),
    **_engine_kinds("copy engine", 39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)),
    **_engine_kinds("video engine", 60, 68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139, 142),
    **_kinds(
        "nobody",
        _SEE_PREVIOUS,
        x45="a program's work was removed, usually after another error",
    ),
    **_kinds("nobody", _READ_MESSAGE, x154="the driver changed the action that it requests for this GPU"),
    **_kinds(
        "driver",
        _UPDATE,
        x37="firmware error",
        x38="firmware watchdog timeout",
        x44="fault during a context switch",
        x46="the GPU stopped processing",
        x61="the GPU's internal controller stopped at a breakpoint",
        x62="the GPU's internal controller halted",
        x66="illegal access by the driver",
        x67="illegal access by the driver",
        x78="virtual GPU could not start",
        x110="security fault",
        x119="GSP firmware timeout",
        x120="GSP firmware error",
        x143="the GPU could not be initialized",
        x151="key rotation error",
        x158="fatal timeout of the GPU",
        x169="the GPU's security controller halted",
    ),
    **_kinds("hardware", _POWER, x54="the card's power cable is not connected"),
    **_kinds(
        "hardware",
        _DIAGNOSE,
        x48="double-bit ECC error",
        x58="memory error",
        x64="row remapping or page retirement failed",
        x95="uncontained memory error",
        x140="unrecovered ECC error",
        x157="a failed resource could not be retired",
        x161="a failed memory channel could not be retired",
        x168="less memory than there should be",
        x171="uncorrectable error in the GPU's memory",
        x172="uncorrectable error in the GPU's SRAM",
    ),
    **_kinds(
        "hardware",
        "Restart the affected program, the others can continue; reset the GPU (nvidia-smi -r) when its work allows.",
        x94="contained memory error",
    ),
    **_kinds(
        "hardware",
        _NOTHING_TO_DO,
        x63="row remapping or page retirement recorded",
        x92="high rate of corrected ECC errors",
        x121="corrected error on the link to the CPU",
        x156="a failed resource was retired",
        x160="a failed memory channel was retired",
    ),
    **_kinds(
        "hardware",
        _RESTART_MACHINE,
        x79="the GPU has fallen off the bus",
        x167="fatal timeout of PCIe",
    ),
    **_kinds(
        "link",
        _LINKS,
        x74="NVLink error",
        x136="NVLink training failed",
        x144="NVLink 5 error, SAW",
        x145="NVLink 5 error, RLW",
        x146="NVLink 5 error, TLW",
        x147="NVLink 5 error, TREX",
        x148="NVLink 5 error, NVLPW_CTRL",
        x149="NVLink 5 error, NETIR (a link went down, or nearly)",
        x150="NVLink 5 error, MSE",
        x155="an NVLink was shut down by software",
        x159="error on the link to the CPU",
    ),
}
_NO_RESET_NEEDED = frozenset({37, 38, 44, 63, 66, 67, 121, 155, 156, 160})
"""Not the program's, but the catalog does not ask for a reset."""
OFF_THE_BUS = 79
_RANKS: dict[Blame, int] = {"hardware": 0, "link": 1, "driver": 2, "program": 3, "nobody": 4}
_XID = re.compile(r"Xid \([^)]{0,80}\): (\d{1,4})\b")
_SECONDS_SINCE_BOOT = re.compile(r"\[ *(\d{1,9}\.\d{1,6})\]")
_CAUSED_BY = re.compile(r"caused by previous Xid (\d{1,4})\b", re.IGNORECASE)


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
        kind = KINDS.get(self.code)
        return f"Xid {self.code} ({kind.meaning})" if kind else f"Xid {self.code}"

    @property
    def is_hardware_fault(self) -> bool:
        """Whether it points to the card, its link or its firmware rather than the program."""
        kind = KINDS.get(self.code or 0)
        return kind is not None and kind.blame in ("hardware", "link", "driver") and self.code not in _NO_RESET_NEEDED

    @property
    def is_program_fault(self) -> bool:
        """Whether it is a program's fault, or a consequence of one, until others speak."""
        kind = KINDS.get(self.code or 0)
        return kind is not None and kind.blame in ("program", "nobody")

    @property
    def action(self) -> str:
        kind = KINDS.get(self.code or 0)
        return kind.action if kind is not None else _RESET


def xid_in_line(line: str) -> Xid | None:
    """The Xid of a line of the kernel's log, ``at`` its seconds since the boot if it has them, else 0; of one that
    another caused, that one."""
    match = _XID.search(line)
    if match is None:
        return None
    before, stamp = _CAUSED_BY.search(line, match.end()), _SECONDS_SINCE_BOOT.search(line, 0, match.start())
    return Xid(at=float(stamp[1]) if stamp is not None else 0.0, code=int((before or match)[1]))


def most_important_xid(xids: Iterable[Xid]) -> Xid | None:
    """The Xid to act on: a GPU that is gone, then the hardware's before the link's before the driver's before a
    program's; of those the first."""
    return min(xids, key=_rank, default=None)


def _rank(xid: Xid) -> tuple[bool, bool, int]:
    kind = KINDS.get(xid.code or 0)
    return (
        xid.code != OFF_THE_BUS,
        not xid.is_hardware_fault,
        _RANKS[kind.blame] if kind is not None else _RANKS["driver"],
    )
