"""Settings that came too late, or exclude each other; and failures that nothing here recognises."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.diagnosis.rules.placement import error_lines
from gpuwatch.logs.topics import topics_of
from gpuwatch.model.findings import CAUSES, Finding, Severity


@rule("config.too-late")
def too_late(evidence: Evidence) -> Iterator[Finding]:
    """A device setting after the first use of a device."""
    lines, expected = error_lines(evidence, "config.too-late")
    if lines:
        severity: Severity = "info" if expected else "error"
        yield finding(
            "config.too-late",
            severity,
            "fact",
            evidence=lines,
            action="Make the tf.config calls right after the import, before any tensor or model is made.",
        )


@rule("config.inconsistent")
def inconsistent(evidence: Evidence) -> Iterator[Finding]:
    """Settings that TensorFlow refuses together."""
    lines, expected = error_lines(evidence, "config.inconsistent")
    if lines:
        severity: Severity = "info" if expected else "error"
        yield finding(
            "config.inconsistent",
            severity,
            "fact",
            evidence=lines,
            action="Set memory growth alike on every GPU, and use either growth or a memory limit, not both.",
        )


@rule("unknown")
def unrecognised_error(evidence: Evidence) -> Iterator[Finding]:
    """The work ended in an error that no topic explains: said, so that it is not taken for health."""
    run = evidence.run
    if run is None:
        return
    lines = [
        f"{error.type}: {error.message.splitlines()[0][:300] if error.message else ''}".rstrip(": ")
        for error in run.errors
        if not error.expected and not any(topic in CAUSES for topic in topics_of(error.message))
    ]
    if not lines and run.verdict == "timeout":
        lines = ["it did not end before its deadline"]
    elif not lines and run.verdict == "error":
        lines = [
            f"killed by signal {run.outcome.signal}" if run.outcome.signal else f"exit code {run.outcome.exit_code}"
        ]
    if lines and not run.ooms:
        yield finding(
            "unknown",
            "error",
            "fact",
            evidence=lines,
            action="Read the end of the log; if it is TensorFlow's or the driver's own fault, report it there.",
        )
