"""Exceptions that a program survived: it exited with 0, so that nobody else says anything."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.model.findings import Finding
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_registry import finding, rule
from gpuwatch.explain.diagnosis.rules.program_errors import ON_PURPOSE, line_of, names_cause, raised_at
from gpuwatch.explain.logs.topics import topics_of

DESPITE_ERROR = "It exited with code 0, although"
_AT_END = 2
"""Lines that may follow the last traceback of what ended with it; a program that went on prints more."""
WENT_ON = "It went on after"
"""Beginnings of titles for a program that exited with 0 after an exception."""


@rule("unknown")
def error_despite_success(evidence: Evidence) -> Iterator[Finding]:
    """The program exited with 0, but its log shows an exception with its traceback: it need not have done its work."""
    run, log = evidence.run, evidence.log
    if run is None or log is None or run.group != "run" or run.verdict != "ok" or run.outcome.exit_code != 0:
        return
    if not log.errors or not log.last_error_has_traceback or run.ooms or log.last_error_line is None:
        return
    error = log.errors[-1]
    if error.type in ON_PURPOSE or names_cause(topics_of(error.message)):
        return
    at_end = log.lines - log.last_error_line <= _AT_END and not log.last_error_went_on
    title = f"{WENT_ON} {error.type}, whose traceback is in its log"
    if log.last_error_in:
        title = f"{DESPITE_ERROR} a {log.last_error_in} of it ended in {error.type}"
    elif at_end:
        title = f"{DESPITE_ERROR} its stderr ends in the traceback of {error.type}"
    yield finding(
        "unknown",
        "warning" if at_end or log.last_error_in else "info",
        title=title,
        evidence=(line_of(error), *raised_at(log, error)),
        action="If the program does not handle this error on purpose, let it exit with another code (sys.exit(1)), so"
        " that scripts and schedulers notice.",
    )
