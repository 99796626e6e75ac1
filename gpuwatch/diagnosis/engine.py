"""Runs every rule, sorts what they found, and names the one primary cause."""

from __future__ import annotations

from collections.abc import Iterable

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.quiet import nothing_found
from gpuwatch.diagnosis.registry import RULES, Rule, finding
from gpuwatch.diagnosis.rules import (
    build,
    compatibility,
    configuration,
    driver,
    hardware,
    idle,
    kernels,
    memory,
    partition,
    placement,
    predicted,
    said,
    unexplained,
    visibility,
)
from gpuwatch.model.findings import SEVERITY_ORDER, Finding

TOPICS = (
    memory,
    placement,
    configuration,
    visibility,
    driver,
    build,
    said,
    compatibility,
    partition,
    hardware,
    kernels,
    idle,
    predicted,
    unexplained,
)
"""The modules whose rules run. A new topic: one import above, one name here."""

# The fixed order of primary causes. What ended the work:
ENDED_WORK = (
    "memory.context-failed",
    "memory.fragmented",
    "memory.other-process",
    "memory.limit-too-small",
    "memory.request-too-large",
    "memory.model-too-large",
    "memory.masked",
    "placement.no-kernel",
    "placement.device-missing",
    "config.too-late",
    "config.inconsistent",
    "distribution.devices-missing",
    "api.removed",
    "hardware.fault",
)
# Else why no GPU was usable:
NO_GPU = (
    "visibility.hidden",
    "visibility.bad-ordinal",
    "driver.missing",
    "driver.mismatch",
    "driver.too-old",
    "driver.bad-state",
    "container.lost-devices",
    "cuda.libraries-missing",
    "cuda.version-mismatch",
    "build.cpu-only",
    "build.gpu-unsupported",
    "mode.exclusive",
    "mig.misuse",
)
_RANK = {cause: rank for rank, cause in enumerate((*ENDED_WORK, *NO_GPU))}


def diagnose(evidence: Evidence, rules: Iterable[Rule] | None = None) -> tuple[Finding, ...]:
    """All findings, most severe first; the same evidence gives the same findings in the same order.

    A rule that raises becomes a finding that says so: the other rules still speak.
    """
    found: dict[tuple[str, str | None, int | None, str], Finding] = {}
    for entry in RULES if rules is None else rules:
        try:
            results = tuple(entry.find(evidence))
        except Exception as error:  # noqa: BLE001 - shown as a finding, see above
            results = (broken(entry.name, entry.causes, error),)
        for result in results:
            key = (result.id, result.device_uuid, result.pid, result.title)
            known = found.get(key)
            if known is None or SEVERITY_ORDER[result.severity] < SEVERITY_ORDER[known.severity]:
                found[key] = result
    if not any(result.severity in ("error", "warning") or result.id in _RANK for result in found.values()):
        nothing = nothing_found(evidence)
        found[nothing.id, None, None, ""] = nothing
    return tuple(in_order(found.values()))


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The most severe first, then by the fixed order of causes."""
    return sorted(findings, key=_order)


def primary(findings: Iterable[Finding]) -> str | None:
    """The one cause to show first; ``healthy`` where nothing is wrong, None without findings.

    An expected outcome has severity ``info`` and never wins over a real finding.
    """
    ordered = in_order(findings)
    for severity in ("error", "warning"):
        for found in ordered:
            if found.severity == severity:
                return found.id
    for found in ordered:
        if found.id in _RANK:
            return found.id
    return "healthy" if ordered else None


def _order(found: Finding) -> tuple[int, int, str, str, int]:
    rank = _RANK.get(found.id, len(_RANK) + (found.id in ("unknown", "healthy")))
    return (SEVERITY_ORDER[found.severity], rank, found.id, found.device_uuid or "", found.pid or 0)


def broken(name: str, causes: Iterable[str], error: Exception) -> Finding:
    """What stands for a rule that failed."""
    return finding(
        "unknown",
        "warning",
        "fact",
        title=f"gpuwatch's own rule {name} failed",
        evidence=(f"{type(error).__name__}: {error}", f"causes it looks for: {', '.join(causes)}"),
        action="Report this as a bug of gpuwatch; the other findings are complete.",
    )
