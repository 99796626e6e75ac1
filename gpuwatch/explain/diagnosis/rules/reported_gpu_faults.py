"""Faults that the driver reports about a running kernel: nearly always bugs of the program, rarely of the card.

Sources: CUDA driver API (CUresult, 700 to 719); of Xids :mod:`gpuwatch.core.model.xids`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.model.findings import Finding, Severity
from gpuwatch.core.model.xids import OFF_THE_BUS, Xid, most_important_xid, xid_in_line
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_registry import finding, rule, warning_finding
from gpuwatch.explain.diagnosis.rules.error_evidence import error_lines
from gpuwatch.explain.logs import cuda_errors
from gpuwatch.explain.logs.log_facts import XidErrors
from gpuwatch.explain.logs.message_topics import states_explicitly

_ILLEGAL_ACCESS_ERRORS = frozenset({700, 716})

_RESET_ACTION = (
    "Drain the GPU and reset it (nvidia-smi -r), and try another one; the kernel's log (dmesg) may say more."
)
_OFF_THE_BUS = Xid(at=0.0, code=OFF_THE_BUS)
_RECOVERY_XID = 154
"""Xid with which the driver says which reset the GPU needs: not a program's fault, nor certainly the card's."""


@rule("hardware.fault", "unknown")
def gpu_fault(evidence: Evidence) -> Iterator[Finding]:
    """Reported by the driver or the kernel: ECC errors, a lost GPU, an Xid.

    Xids of programs alone do not accuse the card: which program, and why, is not in them.
    """
    lines, expected = error_lines(evidence, "hardware.fault")
    if not lines:
        return
    severity: Severity = "info" if expected else "error"
    seen_xids = list(evidence.log.xids.values())
    xids = [xid.xid for xid in seen_xids]
    xid, title, action = most_important_xid(xids), "", _RESET_ACTION
    if xid is not None:
        title, action = f"The driver reported {xid.text}", xid.action
    if (xid is None or not xid.is_hardware_fault) and any("fallen off the bus" in line.lower() for line in lines):
        title, action, xid = "A GPU has fallen off the bus", _OFF_THE_BUS.action, None
        lines.sort(key=lambda line: "fallen off the bus" not in line.lower())
    only_xids = bool(xids) and all(xid_in_line(line) is not None for line in lines)
    yield finding(
        "unknown"
        if only_xids and all(xid.is_program_fault and xid.code != _RECOVERY_XID for xid in xids)
        else "hardware.fault",
        severity,
        "fact" if not only_xids and any(states_explicitly(line, "hardware.fault") for line in lines) else "likely",
        title=title,
        evidence=[*(item.line for item in seen_xids if item.xid is xid), *lines, *_xids_in_order(seen_xids)],
        action=action,
    )


def _xids_in_order(seen: list[XidErrors]) -> Iterator[str]:
    """The Xids in the order of their first times, as a line; nothing for a single one."""
    if len(seen) > 1:
        stamped = all(xid.xid.at for xid in seen)
        in_order = sorted(seen, key=lambda xid: xid.xid.at if stamped else 0.0)
        shown = (f"{xid.xid.code}{f' ({xid.count} times)' if xid.count > 1 else ''}" for xid in in_order)
        yield f"Xids in order of time: {', '.join(shown)}"


@rule("hardware.fault", "unknown")
def kernel_fault(evidence: Evidence) -> Iterator[Finding]:
    """A kernel crashed: a bug of the program or a fault of the card, which the error does not distinguish.

    An error of this kind stays with its process, so that two kinds in one log are two crashes: one wrong index would
    fail the same way each time.
    """
    lines, expected = error_lines(evidence, "ended.kernel")
    hardware_lines, _ = error_lines(evidence, "hardware.fault")
    if not lines or hardware_lines:
        return
    codes = dict.fromkeys(filter(None, map(cuda_errors.number, lines)))
    severity: Severity = "info" if expected else "error"
    if len(codes) > 1 and evidence.run is None:
        yield finding(
            "hardware.fault",
            severity,
            "likely",
            title=f"Kernels crashed in {len(codes)} different ways (CUDA errors {', '.join(map(str, codes))})",
            evidence=lines,
            action=f"Run the same program on another GPU, and compute-sanitizer on this one. {_RESET_ACTION}",
        )
        return
    code = next(iter(codes), None)
    yield finding(
        "unknown",
        severity,
        title="A kernel made an illegal memory access: usually an index out of range or a bug in the kernel"
        if code in _ILLEGAL_ACCESS_ERRORS
        else "A kernel crashed: usually a bug in it, or an index out of range",
        evidence=lines,
        action="Run it again with CUDA_LAUNCH_BLOCKING=1, which shows the op, or the step on the CPU, which names a"
        " wrong index; compute-sanitizer names the kernel. Suspect the card only if other programs fail on it too, or"
        " if dmesg has Xid 48, 74 or 79.",
    )


@rule("unknown")
def nvswitch_fault(evidence: Evidence) -> Iterator[Finding]:
    """An NVSwitch reported an error after which it went on: a program's illegal access, or a link that wears out."""
    lines, _ = error_lines(evidence, "nvswitch.non-fatal")
    if lines:
        yield warning_finding(
            "unknown",
            title="An NVSwitch reported a non-fatal error",
            evidence=lines[:5],
            action="Nothing to do if it happens only once and programs continue. If a program failed at that time, "
            "check its own error; if it happens again on the same port, have the link checked.",
        )
