"""Ops that did not run where they were asked to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.formatting.text import printable
from gpuwatch.logs.clean import device
from gpuwatch.logs.tensorflow import parse
from gpuwatch.logs.topics import topics_of
from gpuwatch.model.findings import Finding, Severity

_DEVICE_ACTION = "Ask for a device that exists (tf.config.list_logical_devices() shows them), or leave the choice open."
_KERNEL_ACTION = "Leave this op to the CPU, or use a type that has a GPU kernel (float32 instead of int32, say)."


REPLICAS = "replicas"
"""The result under which the watcher tells the devices of a MirroredStrategy."""
_GPU_TYPES = re.compile(r"Supported device types \[([^\]]*)\]")


def telling_line(message: str, cause: str) -> str:
    """The line of a message of many lines that means ``cause``; its first one is often a mere heading."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return next((line for line in lines if cause in topics_of(line)), lines[0] if lines else "")


def error_lines(evidence: Evidence, cause: str) -> tuple[list[str], bool]:
    """Lines of the run's errors and of the log that mean ``cause``, and whether all were expected."""
    lines: list[str] = []
    expected = False
    if evidence.run is not None:
        matching = [error for error in evidence.run.errors if cause in topics_of(error.message)]
        lines += [f"{error.type}: {telling_line(error.message, cause)[:300]}" for error in matching]
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
        title = _refused_op(evidence, cause)
        yield finding(cause, severity, "fact", title=title, evidence=lines, action=_KERNEL_ACTION)
    else:
        yield from _fell_back(evidence, cause, _KERNEL_ACTION)


def _refused_op(evidence: Evidence, cause: str) -> str:
    """``MatMul asked for /GPU:0, its type int32 has only a CPU kernel``; empty where nothing tells it."""
    run = evidence.run
    message = next((error.message for error in run.errors if cause in topics_of(error.message)), "") if run else ""
    reports = parse(message).colocations if "Colocation" in message else []
    if evidence.log is not None:
        reports = [*reports, *evidence.log.colocations]
    report = next((entry for entry in reports if entry.failed and entry.members), None)
    results = run.results if run is not None and message else {}
    op, dtype, asked = (str(results.get(name) or "") for name in ("op", "dtype", "requested"))
    supported: tuple[str, ...] = ()
    together = ""
    if report is not None:
        first = next((member for member in report.members if member.op == op), report.members[0])
        supported = report.supported
        asked = asked or report.requested or first.requested
        op = f"{first.op} `{first.node}`"
        others = [f"{member.op} `{member.node}`" for member in report.members if member is not first]
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        together = f", and it is colocated with {', '.join(others[:3])}{more}" if others else ""
    elif match := _GPU_TYPES.search(message):
        supported = tuple(part.strip() for part in match[1].split(",") if part.strip())
    if not op or not asked:
        return ""
    kind = f"its type {dtype}" if dtype else "it"
    has = f"has only a {' and '.join(supported)} kernel" if supported else "has no kernel for it"
    return printable(f"{op} asked for /{device(asked).upper()}, {kind} {has}{together}")


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


_REPLICAS = "Pass only devices of tf.config.list_logical_devices('GPU') to the strategy."


@rule("distribution.devices-missing")
def strategy_devices_missing(evidence: Evidence) -> Iterator[Finding]:
    """MirroredStrategy on devices that do not exist: it returns replicas all the same, and since 2.15 says nothing."""
    run = evidence.run
    told = run.results.get(REPLICAS) if run is not None else None
    missing = told.get("missing") if isinstance(told, dict) else None
    if run is None or not isinstance(told, dict) or not missing:
        yield from _error_of(evidence, "distribution.devices-missing", _REPLICAS)
        return
    listed = ", ".join(printable(str(name)).removeprefix("/device:") for name in missing)
    yield finding(
        "distribution.devices-missing",
        "error" if evidence.gpu_usable else "warning",  # without any GPU, why there is none comes first
        "fact",
        title=f"The strategy has replicas on {listed}, which the program does not have: they run on other devices",
        evidence=(
            f"the strategy's devices: {', '.join(map(str, told.get('devices', ())))}",
            f"logical devices: {', '.join(run.devices.logical)}",
        ),
        action=_REPLICAS,
    )
