"""The end of a log's last start decides: what the program outlived counts no more, and a warning no more than an error.

An error counts unless work followed it, of the same program or of another start. A warning counts unless the program
ended in an exception of its own, a signal or an interrupt, of which the log does not say that it has to do with a GPU.
What follows from the end of another process is no exception of its own: that process may have ended for the warning.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from gpuwatch.core.model.findings import CAUSES, NO_GPU, Finding
from gpuwatch.explain.diagnosis.rule_engine import by_severity
from gpuwatch.explain.diagnosis.rules.missing_gpu import NOT_WHY
from gpuwatch.explain.diagnosis.rules.program_errors import END_LINES, ON_PURPOSE, ends_log, line_of, names_cause
from gpuwatch.explain.diagnosis.rules.reported_process_failures import died_of_its_own, follows_from_another
from gpuwatch.explain.logs import reported_ends
from gpuwatch.explain.logs.last_lines import KERAS, OF_NCCL, WORKED, only_began
from gpuwatch.explain.logs.log_facts import LogFacts

_FROM_OUTSIDE = reported_ends.FROM_OUTSIDE | {reported_ends.KILLED, reported_ends.TERMINATED, reported_ends.HOST_MEMORY}
_OUT_OF_MEMORY, _MAX_FEW_LINES = "memory.oom", 2
"""Lines of steps after an error that may have been printed before it."""


def without_outlived(log: LogFacts) -> LogFacts:
    """The facts without failures that the end of the log shows to be of no consequence; the same if there are none."""
    last, gone = log.last_error_line or 0, set()
    stopped, outlived = _was_stopped(log), _outlived(log)
    died = stopped or died_of_its_own(log)
    of_memory = bool(log.errors) and "memory" in line_of(log.errors[-1]).lower()  # outlived: LogFacts.oom_survived
    for topic, at in log.noted_at.items():
        if topic in log.topics and (topic.startswith("ended.") or topic == _OUT_OF_MEMORY or names_cause([topic])):
            warned = log.topics[topic] == log.warned.get(topic, 0)
            # That the program ended otherwise does not show that NCCL went on.
            warned = warned and not any(map(OF_NCCL.search, log.evidence[topic]))
            own_rule = topic == _OUT_OF_MEMORY and outlived >= last and of_memory and not stopped
            if died if warned else at <= outlived and not own_rule:
                gone.add(topic)
    if not gone:
        return log
    return replace(
        log,
        topics={topic: count for topic, count in log.topics.items() if topic not in gone},
        evidence={topic: lines for topic, lines in log.evidence.items() if topic not in gone},
        ooms=[] if _OUT_OF_MEMORY in gone else log.ooms,
        missing_libraries=[] if "cuda.missing-library" in gone else log.missing_libraries,
        libraries_skipped=log.libraries_skipped and "cuda.libraries-skipped" not in gone,
        cudart_missing=log.cudart_missing and "cuda.cudart-missing" not in gone,
        cuinit_error=None if "driver.cuinit" in gone else log.cuinit_error,
        driver_messages=[] if gone & {"driver.not-running", "driver.mismatch"} else log.driver_messages,
        hidden_by_environment=None if "visibility.hidden" in gone else log.hidden_by_environment,
    )


def _was_stopped(log: LogFacts) -> bool:
    """Whether a signal, a scheduler or a person ended the program, as the last lines tell."""
    at = log.reported_end_at if log.reported_end in _FROM_OUTSIDE else log.noted_at.get("ended.killed", 0)
    interrupted = bool(log.errors) and log.errors[-1].type in ON_PURPOSE and ends_log(log)
    return interrupted or (at > 0 and log.lines - at <= END_LINES)


def _outlived(log: LogFacts) -> int:
    """The line up to which work followed the errors; 0 if none did."""
    stopped = _was_stopped(log)
    if stopped and log.printed_after_error > _MAX_FEW_LINES:
        return log.last_error_line or 0
    return log.worked_after if stopped or not follows_from_another(log) else 0


def with_outlived_as_notes(found: Iterable[Finding], before: Iterable[Finding], log: LogFacts) -> tuple[Finding, ...]:
    """The findings of what counts, with notes of those that do not: ``before`` has both."""
    found, before = [*found], [*before]
    known = {finding.id for finding in found}
    why = [
        finding for finding in before if finding.id in NO_GPU and finding.id not in known and finding.severity != "info"
    ]
    if why and any(finding.title.endswith(NOT_WHY) for finding in found):
        found = [finding for finding in found if not finding.title.endswith(NOT_WHY)]
        found += [replace(finding, severity="warning") for finding in why]
    kept = [_of_a_program_that_worked(finding, log) for finding in found]
    known = {finding.id for finding in kept}
    outlived = _outlived(log)
    notes = [
        replace(
            finding,
            severity="info",
            title=f"{finding.title or CAUSES[finding.id]} ("
            f"{'the program continued after it' if log.noted_at.get(finding.id, 1) <= outlived else 'only a warning'})",
        )
        for finding in before
        if finding.id not in known
        and finding.severity != "info"
        and finding.id not in ("unknown", "healthy", "program.error")
    ]
    return tuple(by_severity([*kept, *notes]))


def _of_a_program_that_worked(found: Finding, log: LogFacts) -> Finding:
    """A reason why no GPU was usable is a warning if the program worked to its end without one."""
    if found.id not in NO_GPU or found.severity != "error" or log.last_lines_tell not in (WORKED, KERAS):
        return found
    told = [topic for topic in log.topics if names_cause([topic])]
    went_on = log.worked_after >= (log.last_error_line or 0) or log.printed_after_error > _MAX_FEW_LINES
    if not went_on or only_began(log.telling_last_line) or not all(topic in log.warned for topic in told):
        return found
    return replace(found, severity="warning", title=f"{found.title}; the program worked without a GPU")
