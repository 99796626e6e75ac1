"""Explains a log: ``gpuwatch.explanation/1``.

The end of a log's last start decides: what the program outlived counts no more, and a warning no more than an error.
An error counts unless work followed it, of the same program or of another start. A warning counts unless the program
ended in an exception of its own, a signal or an interrupt, of which the log does not say that it has to do with a GPU.
What follows from the end of another process is no exception of its own: that process may have ended for the warning.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from gpuwatch.core.model.causes import CAUSES, NO_GPU
from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.log_without_finding import is_provisional, shows_nothing
from gpuwatch.explain.diagnosis.memory.oom_verdict import with_verdicts
from gpuwatch.explain.diagnosis.rule_engine import by_severity, diagnose, primary_cause
from gpuwatch.explain.diagnosis.rule_registry import info_finding
from gpuwatch.explain.diagnosis.rules.error_evidence import END_LINES, INTENDED_ENDS, ends_log, error_line, names_cause
from gpuwatch.explain.diagnosis.rules.missing_gpus import NO_REASON_ENDING
from gpuwatch.explain.diagnosis.rules.process_ends import ended_by_error_unrelated_to_gpus, follows_from_another_process
from gpuwatch.explain.diagnosis.runs.op_fallbacks import fallbacks_in_log
from gpuwatch.explain.logs import reported_ends
from gpuwatch.explain.logs.failure_lines import NCCL_WARNING
from gpuwatch.explain.logs.line_authors import without_summaries
from gpuwatch.explain.logs.log_ending import announces_work
from gpuwatch.explain.logs.log_facts import KERAS_WORK, WORK, LogFacts
from gpuwatch.explain.logs.program_starts import LogReader, is_consequence
from gpuwatch.explain.logs.unread_formats import MAX_CHARS, MAX_LINES, UnreadFormat, unread_format
from gpuwatch.explain.traces.nvidia_smi_q import SmiQueryReader

_KILLED = {reported_ends.KILLED, reported_ends.TERMINATED, reported_ends.HOST_MEMORY}
_ENDED_FROM_OUTSIDE = reported_ends.ENDED_FROM_OUTSIDE | _KILLED
_OUT_OF_MEMORY = "memory.oom"
_MAX_LATE_STEP_LINES = 2
"""Lines of steps after an error that may have been printed before it."""
_MAX_EMPTY_LINES = 16
"""Empty lines after which no message goes on."""


def explain(
    lines: Iterable[str],
    environment: Mapping[str, str] | None = None,
    *,
    source: str | None = None,
    reader: LogReader | None = None,
) -> Explanation:
    """Explains the lines of a log in one pass.

    ``environment``: that of the logged program, if it is known. ``reader``: if the caller looks at its facts meanwhile.
    """
    reader = LogReader() if reader is None else reader
    queries, empty_lines = SmiQueryReader(), 0
    feed, is_of_query = reader.feed, queries.take
    start: list[str] = []
    for line in without_summaries(_with_start_kept(lines, start)):
        if not is_of_query(line):
            empty_lines = 0
            feed(line)
        elif empty_lines < _MAX_EMPTY_LINES:  # what nvidia-smi only lists is not for the rules on log lines
            empty_lines += 1
            reader.parser.feed("")
        else:
            reader.parser.count_line()
    reader.parser.close()
    last = explain_facts(reader.parser.facts, environment or {}, source=source, machine=queries.snapshot())
    if reader.earlier is not None:
        return _explanation_of_starts(last, reader.earlier, reader)
    found = unread_format("\n".join(start), reader.parser.facts.last_line)
    return last if found is None or not _shows_no_program(last) else _explanation_of_format(last, found)


def _with_start_kept(lines: Iterable[str], start: list[str]) -> Iterator[str]:
    """The same lines; of the first ones that are not empty, ``start`` then has the beginnings."""
    rest = iter(lines)
    for line in rest:
        if line.strip():
            start.append(line[:MAX_CHARS].rstrip("\r\n"))
        yield line
        if len(start) >= MAX_LINES:
            break
    yield from rest


def _shows_no_program(found: Explanation) -> bool:
    """Whether an explanation has nothing but the finding of a log in which nothing is known."""
    known = found.frameworks or found.machine or found.device_map or found.errors or found.ooms
    return not known and len(found.findings) == 1 and found.findings[0].severity == "info"


def _explanation_of_format(found: Explanation, known: UnreadFormat) -> Explanation:
    note = info_finding("unknown", title=f"A file that gpuwatch does not read: {known.name}", action=known.action)
    return replace(found, findings=(note,), primary="unknown")


def _explanation_of_starts(last: Explanation, earlier: LogFacts, reader: LogReader) -> Explanation:
    """The explanation of the last of several starts; of another one if that failed and the last only followed from it,
    shows nothing, or is of another program, which worked."""
    facts, count, first = reader.parser.facts, reader.start_count, reader.first_line
    before = explain_facts(earlier, {}, source=last.source, machine=last.machine)
    worked = last.primary == "healthy" and facts.ending_kind in (WORK, KERAS_WORK)
    explained, lines = before, [f"the last start begins at line {first}"]
    if is_consequence(facts, earlier):
        title = (
            f"The log covers {count} or more programs; the last failed because one before it had failed: this "
            "explains that one"
        )
        lines = [f"{last.findings[0].title}, from line {first}"]
    elif worked and (failed := _failed_other_program(last, reader)):
        (name, explained), program = failed, reader.parser.program
        title = f"The log covers several programs. The last, {program}, worked; this explains {name}, which failed"
    elif (last.primary == "healthy" and not worked and before.primary != "healthy") or shows_nothing(last.findings[0]):
        title = (
            f"The log covers {count} or more starts; the last, from line {first}, shows nothing, so this explains "
            f"the one before"
        )
    else:
        title = f"The log covers {count} or more starts; this explains the last, from line {first}"
        how = next((found.title for found in before.findings if found.id == before.primary), "")
        lines, explained = [f"before that: {how}"], last
    note = info_finding("unknown", title=title, evidence=lines)
    return replace(explained, lines=last.lines, findings=(*explained.findings, note))


def _failed_other_program(last: Explanation, reader: LogReader) -> tuple[str, Explanation] | None:
    """Name and explanation of the last program with another name than the last one's that failed; None without one."""
    if reader.parser.program:
        for name, facts in reversed(reader.programs.items()):
            found = explain_facts(facts, {}, source=last.source, machine=last.machine)
            if name != reader.parser.program and found.findings[0].severity == "error":
                return name, found
    return None


def findings_so_far(facts: LogFacts) -> tuple[Finding, ...]:
    """The findings so far, of a log that is still being read."""
    # Later lines may still mention a GPU.
    return tuple(found for found in diagnose(Evidence(log=facts)) if not is_provisional(found))


def explain_facts(
    facts: LogFacts, environment: Mapping[str, str], *, source: str | None = None, machine: Snapshot | None = None
) -> Explanation:
    """The explanation of parsed facts, and of the machine that the log shows."""
    evidence = Evidence(log=facts, environment=environment, snapshot=machine)
    relevant = _without_survived_failures(facts)
    found = diagnose(dataclasses.replace(evidence, log=relevant))
    findings = _with_survived_as_notes(found, diagnose(evidence) if relevant is not facts else (), facts)
    return Explanation(
        source=source,
        lines=facts.line_count,
        frameworks=tuple(facts.frameworks),
        device_map=tuple(facts.device_map),
        placements=tuple(facts.placements),
        ooms=with_verdicts(evidence, tuple(facts.ooms)),
        fallbacks=fallbacks_in_log(facts, evidence, findings),
        missing_libraries=tuple(facts.missing_libraries),
        errors=tuple(facts.errors),
        findings=findings,
        primary=primary_cause(found),
        unrecognised=tuple(facts.unknown_gpu_lines),
        machine=machine,
    )


def _without_survived_failures(log: LogFacts) -> LogFacts:
    """The facts without failures that the end of the log shows to be of no consequence; the same if there are none."""
    dropped = set()
    stopped, survived_until = _was_stopped(log), _survived_until_line(log)
    ended_otherwise = stopped or ended_by_error_unrelated_to_gpus(log)
    of_memory = bool(log.errors) and "memory" in error_line(log.errors[-1]).lower()  # LogFacts.oom_survived tells more
    for topic, line_number in log.topic_line_numbers.items():
        if topic in log.topics and (topic.startswith("ended.") or topic == _OUT_OF_MEMORY or names_cause([topic])):
            only_warned = log.topics[topic] == log.warnings_by_topic.get(topic, 0)
            # That the program ended otherwise does not show that NCCL went on.
            only_warned = only_warned and not any(map(NCCL_WARNING.search, log.evidence[topic]))
            survived_error = survived_until >= (log.last_error_line or 0)
            own_rule = topic == _OUT_OF_MEMORY and survived_error and of_memory and not stopped
            if ended_otherwise if only_warned else line_number <= survived_until and not own_rule:
                dropped.add(topic)
    if not dropped:
        return log
    return replace(
        log,
        topics={topic: count for topic, count in log.topics.items() if topic not in dropped},
        evidence={topic: lines for topic, lines in log.evidence.items() if topic not in dropped},
        ooms=[] if _OUT_OF_MEMORY in dropped else log.ooms,
        missing_libraries=[] if "cuda.missing-library" in dropped else log.missing_libraries,
        libraries_skipped=log.libraries_skipped and "cuda.libraries-skipped" not in dropped,
        cudart_missing=log.cudart_missing and "cuda.cudart-missing" not in dropped,
        cuinit_error=None if "driver.cuinit" in dropped else log.cuinit_error,
        driver_messages=[] if dropped & {"driver.not-running", "driver.mismatch"} else log.driver_messages,
        hiding_visible_devices=None if "visibility.hidden" in dropped else log.hiding_visible_devices,
    )


def _was_stopped(log: LogFacts) -> bool:
    """Whether a signal, a scheduler or a person ended the program, as the last lines tell."""
    at = log.topic_line_numbers.get("ended.killed", 0)
    if log.reported_end in _ENDED_FROM_OUTSIDE:
        at = log.reported_end_line_number
    interrupted = bool(log.errors) and log.errors[-1].type in INTENDED_ENDS and ends_log(log)
    return interrupted or (at > 0 and log.line_count - at <= END_LINES)


def _survived_until_line(log: LogFacts) -> int:
    """The line up to which work followed the errors; 0 if none did."""
    stopped = _was_stopped(log)
    if stopped and log.steps_printed_after_error > _MAX_LATE_STEP_LINES:
        return log.last_error_line or 0
    return log.last_survived_error_line if stopped or not follows_from_another_process(log) else 0


def _with_survived_as_notes(found: Iterable[Finding], of_all: Iterable[Finding], log: LogFacts) -> tuple[Finding, ...]:
    """The findings of what counts, with notes of those that do not: ``of_all`` has both."""
    found, of_all = [*found], [*of_all]
    known = {finding.id for finding in found}
    new = [finding for finding in of_all if finding.id not in known and finding.severity != "info"]
    causes = [finding for finding in new if finding.id in NO_GPU]
    if causes and any(finding.title.endswith(NO_REASON_ENDING) for finding in found):
        found = [finding for finding in found if not finding.title.endswith(NO_REASON_ENDING)]
        found += [replace(finding, severity="warning") for finding in causes]
    counting = [_warning_if_program_worked(finding, log) for finding in found]
    known = {finding.id for finding in counting}
    survived_until, line_numbers = _survived_until_line(log), log.topic_line_numbers

    def note(finding: Finding) -> Finding:
        survived = line_numbers.get(finding.id, 1) <= survived_until
        why = "the program continued after it" if survived else "only a warning"
        return replace(finding, severity="info", title=f"{finding.title or CAUSES[finding.id]} ({why})")

    notes = [
        note(finding)
        for finding in of_all
        if finding.id not in known
        and finding.severity != "info"
        and finding.id not in ("unknown", "healthy", "program.error")
    ]
    return tuple(by_severity([*counting, *notes]))


def _warning_if_program_worked(found: Finding, log: LogFacts) -> Finding:
    """A reason why no GPU was usable is a warning if the program worked to its end without one."""
    if found.id not in NO_GPU or found.severity != "error" or log.ending_kind not in (WORK, KERAS_WORK):
        return found
    causes = [topic for topic in log.topics if names_cause([topic])]
    went_on = log.last_survived_error_line >= (log.last_error_line or 0)
    went_on = went_on or log.steps_printed_after_error > _MAX_LATE_STEP_LINES
    if not went_on or announces_work(log.ending_line) or not all(topic in log.warnings_by_topic for topic in causes):
        return found
    return replace(found, severity="warning", title=f"{found.title}; the program worked without a GPU")
