"""Faults that the driver reports of a running kernel: nearly always the program's own, seldom the card's.

Sources: CUDA driver API (CUresult, 700 to 719); of Xids :mod:`gpuwatch.model.xids`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.diagnosis.rules.placement import error_lines
from gpuwatch.model.findings import Finding, Severity
from gpuwatch.model.xids import Xid

_OUT_OF_BOUNDS = re.compile(r"illegal memory access|ILLEGAL_ADDRESS|misaligned address|MISALIGNED_ADDRESS")
_TOO_LONG = re.compile(r"launch timed out|LAUNCH_TIMEOUT")
_CRASHED = re.compile(
    r"unspecified launch failure|LAUNCH_FAILED|illegal instruction|ILLEGAL_INSTRUCTION|GPU sync failed"
    r"|runtime error \((?:77|700)\)"
)
_XID = re.compile(r"Xid \([^)]*\): (\d{1,4})\b")

_FIND_THE_OP = (
    "Run it again with CUDA_LAUNCH_BLOCKING=1, which shows the op, or that step on the CPU, which names a wrong index;"
    " compute-sanitizer names the kernel. Only if other programs fail on this GPU too, or dmesg has Xid 48, 74 or 79,"
    " is it the card."
)
_KINDS = (
    (
        _OUT_OF_BOUNDS,
        "A kernel used memory that is not its own: mostly an index out of range or a bug in the kernel",
        _FIND_THE_OP,
    ),
    (
        _TOO_LONG,
        "A kernel ran longer than the driver allows on a GPU that also drives a display",
        "Give each launch less to do (a smaller batch), or compute on a GPU without a display.",
    ),
    (_CRASHED, "A kernel crashed: mostly a bug in it, or an index out of range", _FIND_THE_OP),
    (_XID, "The driver reports {xid}", _FIND_THE_OP),
)


@rule("hardware.fault")
def fault_in_a_kernel(evidence: Evidence) -> Iterator[Finding]:
    """Told as the card's own only where the line says so: ECC, a lost GPU, an Xid that is the card's."""
    lines, expected = error_lines(evidence, "hardware.fault")
    if not lines:
        return
    severity: Severity = "info" if expected else "error"
    xids = [Xid(at=0.0, code=int(match[1])) for line in lines if (match := _XID.search(line))]
    xid = next((entry for entry in xids if entry.hardware), xids[0] if xids else None)
    title = _KINDS[-1][1].format(xid=xid.text) if xid is not None else ""
    kinds = {next((kind for kind in _KINDS if kind[0].search(line)), None): None for line in lines}
    if None not in kinds and (xid is None or not xid.hardware):
        _, said, action = next(kind for kind in _KINDS if kind in kinds)
        yield finding("hardware.fault", severity, "likely", title=title or said, evidence=lines, action=action)
        return
    yield finding(
        "hardware.fault",
        severity,
        "likely",
        title=title,
        evidence=lines,
        action="Look for Xid lines in dmesg; drain and reset the GPU (nvidia-smi -r), and run the same on another one.",
    )
