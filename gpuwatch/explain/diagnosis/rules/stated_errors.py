"""Lines of a run's errors and of its log that state a cause."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.model.findings import Finding
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_registry import finding
from gpuwatch.explain.logs.topics import topics_of


def telling_line(message: str, cause: str) -> str:
    """The line of a multi-line message that states ``cause``; its first line is often only a heading."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return next((line for line in lines if cause in topics_of(line)), lines[0] if lines else "")


def error_lines(evidence: Evidence, cause: str) -> tuple[list[str], bool]:
    """Lines of the run's errors and of the log that state ``cause``, and whether all were expected."""
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


def stated_error(evidence: Evidence, cause: str, action: str, title: str = "") -> Iterator[Finding]:
    """The finding for an error that the framework reports: a note if it was expected."""
    lines, expected = error_lines(evidence, cause)
    if lines:
        yield finding(cause, "info" if expected else "error", "fact", title=title, evidence=lines, action=action)
