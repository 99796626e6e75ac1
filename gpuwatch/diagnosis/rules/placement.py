"""Ops that did not run where they were asked to."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.logs.topics import topics_of
from gpuwatch.model.findings import Finding, Severity

_DEVICE_ACTION = "Ask for a device that exists (tf.config.list_logical_devices() shows them), or leave the choice open."
_KERNEL_ACTION = "Leave this op to the CPU, or use a type that has a GPU kernel (float32 instead of int32, say)."


def error_lines(evidence: Evidence, cause: str) -> tuple[list[str], bool]:
    """Lines of the run's errors and of the log that mean ``cause``, and whether all were expected."""
    lines: list[str] = []
    expected = False
    if evidence.run is not None:
        matching = [error for error in evidence.run.errors if cause in topics_of(error.message)]
        lines += [f"{error.type}: {error.message.splitlines()[0][:300]}" for error in matching]
        expected = bool(matching) and all(error.expected for error in matching)
    if evidence.log is not None:
        from_log = evidence.log.lines_of(cause)
        if evidence.run is None or not lines:
            lines += from_log
        elif from_log:
            lines += [line for line in from_log if not any(line.endswith(known[-60:]) for known in lines)][:2]
    return lines, expected


def _error_of(evidence: Evidence, cause: str, action: str) -> Iterator[Finding]:
    lines, expected = error_lines(evidence, cause)
    if not lines:
        return
    severity: Severity = "info" if expected else "error"
    yield finding(cause, severity, "fact", evidence=lines, action=action)


@rule("placement.device-missing")
def device_missing(evidence: Evidence) -> Iterator[Finding]:
    """A device was asked for by name that the framework does not have."""
    yield from _error_of(evidence, "placement.device-missing", _DEVICE_ACTION)
    yield from _fell_back(evidence, "placement.device-missing", _DEVICE_ACTION)


@rule("placement.no-kernel")
def no_kernel(evidence: Evidence) -> Iterator[Finding]:
    """An op has no kernel for the device or type that was asked for."""
    cause = "placement.no-kernel"
    lines, expected = error_lines(evidence, cause)
    log = evidence.log
    if log is not None:
        for report in log.colocations:
            if report.requested and report.supported:
                names = ", ".join(f"{member.op} {member.node}" for member in report.members[:4])
                lines.append(
                    f"asked {report.requested}, kernels for {', '.join(report.supported)} only: {names or 'the group'}"
                )
        moved = bool(log.colocations) and not any(report.failed for report in log.colocations)
    else:
        moved = False
    asks_gpu_without_any = log is not None and not evidence.gpu_usable and moved
    if lines and not asks_gpu_without_any:
        by_design = evidence.run is not None and moved
        severity: Severity = "info" if expected or by_design else "error" if not moved else "warning"
        yield finding(cause, severity, "fact", evidence=lines, action=_KERNEL_ACTION)
    else:
        yield from _fell_back(evidence, cause, _KERNEL_ACTION)


def _fell_back(evidence: Evidence, cause: str, action: str) -> Iterator[Finding]:
    """Fallbacks of a probe. What a probe asked by name is its subject, so the finding is no alarm."""
    if evidence.run is None:
        return
    lines = [
        f"{entry.op} asked for {entry.requested}, ran on {entry.actual}" + (f": {entry.detail}" if entry.detail else "")
        for entry in evidence.run.fallbacks
        if entry.reason == cause
    ]
    if lines:
        named = all(entry.requested != "auto" for entry in evidence.run.fallbacks if entry.reason == cause)
        yield finding(cause, "info" if named else "warning", "fact", evidence=lines, action=action)


@rule("distribution.devices-missing")
def strategy_devices_missing(evidence: Evidence) -> Iterator[Finding]:
    """MirroredStrategy on devices that do not exist: it returns replicas all the same."""
    yield from _error_of(
        evidence,
        "distribution.devices-missing",
        "Pass only devices of tf.config.list_logical_devices('GPU') to the strategy.",
    )
