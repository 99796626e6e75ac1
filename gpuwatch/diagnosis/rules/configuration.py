"""Settings that were made too late, or that exclude each other."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.diagnosis.rules.placement import error_lines
from gpuwatch.model.findings import Finding, Severity


@rule("config.too-late")
def too_late(evidence: Evidence) -> Iterator[Finding]:
    """A device setting was changed after the first use of a device."""
    lines, expected = error_lines(evidence, "config.too-late")
    if lines:
        severity: Severity = "info" if expected else "error"
        yield finding(
            "config.too-late",
            severity,
            "fact",
            evidence=lines,
            action="Call tf.config right after the import, before any tensor or model is created.",
        )


@rule("config.inconsistent")
def inconsistent(evidence: Evidence) -> Iterator[Finding]:
    """Settings that TensorFlow rejects in combination."""
    lines, expected = error_lines(evidence, "config.inconsistent")
    if lines:
        severity: Severity = "info" if expected else "error"
        yield finding(
            "config.inconsistent",
            severity,
            "fact",
            evidence=lines,
            action="Set memory growth alike on every GPU. For growth up to a limit, set only memory_limit, and"
            " TF_FORCE_GPU_ALLOW_GROWTH=true in the environment.",
        )
