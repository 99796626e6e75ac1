"""Explains a log: ``gpuwatch.explanation/1``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.engine import diagnose, primary
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.fallbacks import moved_by_placer
from gpuwatch.explain.diagnosis.no_finding import OF_A_PART
from gpuwatch.explain.diagnosis.oom_facts import judged
from gpuwatch.explain.logs.facts import LogFacts
from gpuwatch.explain.logs.log_parser import LogParser
from gpuwatch.explain.traces.smi_query import SmiQueryReader

_ENDS_ALL = 16
"""Empty lines after which no message goes on."""


def explain(
    lines: Iterable[str],
    environment: Mapping[str, str] | None = None,
    *,
    source: str | None = None,
    parser: LogParser | None = None,
) -> Explanation:
    """Explains the lines of a log in one pass. ``environment``: only if it is that of the logged program.

    ``parser``: a parser whose facts the caller reads meanwhile.
    """
    parser = LogParser() if parser is None else parser
    feed, queries = parser.feed, SmiQueryReader()
    of_query, facts, run = queries.take, parser.facts, 0
    for line in lines:
        if not of_query(line):
            run = 0
            feed(line)
        elif run < _ENDS_ALL:  # the rules for words of a log would judge what nvidia-smi only lists
            run += 1
            feed("")
        else:
            facts.lines += 1
    parser.close()
    return explanation(parser.facts, environment or {}, source=source, machine=queries.snapshot())


def findings_of(facts: LogFacts) -> tuple[Finding, ...]:
    """The findings so far, of a log that is still being read."""
    # Later lines may still mention a GPU.
    return tuple(found for found in diagnose(Evidence(log=facts)) if found.title not in OF_A_PART)


def explanation(
    facts: LogFacts, environment: Mapping[str, str], *, source: str | None = None, machine: Snapshot | None = None
) -> Explanation:
    """The explanation of parsed facts, and of the machine that the log shows."""
    evidence = Evidence(log=facts, environment=environment, snapshot=machine)
    findings = diagnose(evidence)
    return Explanation(
        source=source,
        lines=facts.lines,
        frameworks=tuple(facts.frameworks),
        device_map=tuple(facts.device_map),
        placements=tuple(facts.placements),
        ooms=judged(evidence, tuple(facts.ooms)),
        fallbacks=moved_by_placer(facts, evidence, findings),
        missing_libraries=tuple(facts.missing_libraries),
        errors=tuple(facts.errors),
        findings=findings,
        primary=primary(findings),
        unrecognised=tuple(facts.unrecognised),
        machine=machine,
    )
