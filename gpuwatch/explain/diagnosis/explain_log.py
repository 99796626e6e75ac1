"""Explains a log: ``gpuwatch.explanation/1``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.memory.oom_facts import with_verdicts
from gpuwatch.explain.diagnosis.no_finding import is_of_last_start, shows_nothing
from gpuwatch.explain.diagnosis.outlived_failures import with_outlived_as_notes, without_outlived
from gpuwatch.explain.diagnosis.rule_engine import diagnose, primary_cause
from gpuwatch.explain.diagnosis.rule_registry import note_of
from gpuwatch.explain.diagnosis.runs.op_fallbacks import moved_by_placer
from gpuwatch.explain.logs.last_lines import KERAS, WORKED
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.program_starts import LogReader, follows
from gpuwatch.explain.logs.run_summary import without_summaries
from gpuwatch.explain.traces.nvidia_smi_q import SmiQueryReader

_MAX_EMPTY_LINES = 16
"""Empty lines after which no message goes on."""


def explain(
    lines: Iterable[str],
    environment: Mapping[str, str] | None = None,
    *,
    source: str | None = None,
    reader: LogReader | None = None,
) -> Explanation:
    """Explains the lines of a log in one pass. ``environment``: only if it is that of the logged program.

    ``reader``: one whose parser's facts the caller looks at meanwhile.
    """
    reader = LogReader() if reader is None else reader
    feed, queries = reader.parser.feed, SmiQueryReader()
    of_query, run = queries.take, 0
    for line in without_summaries(lines):
        if not of_query(line):
            run = 0
            if (key := reader.key) is not None and key in line and reader.begins(line):
                feed = reader.parser.feed
            feed(line)
            if reader.parser.starts:
                reader.begun()
                feed = reader.parser.feed
        elif run < _MAX_EMPTY_LINES:  # the rules for words of a log would judge what nvidia-smi only lists
            run += 1
            feed("")
        else:
            reader.parser.skip()
    reader.parser.close()
    found = explanation(reader.parser.facts, environment or {}, source=source, machine=queries.snapshot())
    return found if reader.earlier is None else _explanation_of_starts(found, reader.earlier, reader)


def _explanation_of_starts(last: Explanation, earlier: LogFacts, reader: LogReader) -> Explanation:
    """The explanation of the last of several starts; of another one if that failed and the last only followed from it,
    shows nothing, or is of another program, which worked."""
    facts, count, first = reader.parser.facts, reader.count, reader.first
    before = explanation(earlier, {}, source=last.source, machine=last.machine)
    worked = last.primary == "healthy" and facts.last_lines_tell in (WORKED, KERAS)
    shown, told = before, [f"the last start begins at line {first}"]
    if follows(facts, earlier):
        title = (
            f"The log covers {count} or more programs; the last failed because one before it had failed: this "
            "explains that one"
        )
        told = [f"{last.findings[0].title}, from line {first}"]
    elif worked and (failed := _failed_of_others(last, reader)):
        (name, shown), program = failed, reader.parser.program
        title = f"The log covers several programs. The last, {program}, worked; this explains {name}, which failed"
    elif (last.primary == "healthy" and not worked and before.primary != "healthy") or shows_nothing(last.findings[0]):
        title = (
            f"The log covers {count} or more starts; the last, from line {first}, shows nothing, so this explains "
            f"the one before"
        )
    else:
        title = f"The log covers {count} or more starts; this explains the last, from line {first}"
        how = next((found.title for found in before.findings if found.id == before.primary), "")
        told, shown = [f"before that: {how}"], last
    note = note_of("unknown", title=title, evidence=tuple(told))
    return replace(shown, lines=last.lines, findings=(*shown.findings, note))


def _failed_of_others(last: Explanation, reader: LogReader) -> tuple[str, Explanation] | None:
    """The last of the programs with another name than the last one's whose last start failed; None without one."""
    if reader.parser.program:
        for name, facts in reversed(reader.programs.items()):
            found = explanation(facts, {}, source=last.source, machine=last.machine)
            if name != reader.parser.program and found.findings[0].severity == "error":
                return name, found
    return None


def findings_of(facts: LogFacts) -> tuple[Finding, ...]:
    """The findings so far, of a log that is still being read."""
    # Later lines may still mention a GPU.
    return tuple(found for found in diagnose(Evidence(log=facts)) if not is_of_last_start(found))


def explanation(
    facts: LogFacts, environment: Mapping[str, str], *, source: str | None = None, machine: Snapshot | None = None
) -> Explanation:
    """The explanation of parsed facts, and of the machine that the log shows."""
    evidence = Evidence(log=facts, environment=environment, snapshot=machine)
    counting = without_outlived(facts)
    found = diagnose(dataclasses.replace(evidence, log=counting))
    findings = with_outlived_as_notes(found, diagnose(evidence) if counting is not facts else (), facts)
    return Explanation(
        source=source,
        lines=facts.lines,
        frameworks=tuple(facts.frameworks),
        device_map=tuple(facts.device_map),
        placements=tuple(facts.placements),
        ooms=with_verdicts(evidence, tuple(facts.ooms)),
        fallbacks=moved_by_placer(facts, evidence, findings),
        missing_libraries=tuple(facts.missing_libraries),
        errors=tuple(facts.errors),
        findings=findings,
        primary=primary_cause(found),
        unrecognised=tuple(facts.unrecognised),
        machine=machine,
    )
