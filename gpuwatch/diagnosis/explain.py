"""A log by itself, explained: ``gpuwatch.explanation/1``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuwatch.diagnosis.engine import diagnose, primary
from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.fallbacks import no_gpu_cause
from gpuwatch.diagnosis.rules.memory import judged
from gpuwatch.logs.facts import LogFacts
from gpuwatch.logs.tensorflow import LogParser
from gpuwatch.model.explanation import Explanation
from gpuwatch.model.findings import Finding
from gpuwatch.model.run import Fallback


def explain(
    lines: Iterable[str], environment: Mapping[str, str] | None = None, *, source: str | None = None
) -> Explanation:
    """One pass over the lines of a log, however many. ``environment``: only if it is that of the logged program."""
    parser = LogParser()
    feed = parser.feed
    for line in lines:
        feed(line)
    parser.close()
    return explanation(parser.facts, environment or {}, source=source)


def explanation(facts: LogFacts, environment: Mapping[str, str], *, source: str | None = None) -> Explanation:
    """The explanation of what a parser has read."""
    evidence = Evidence(log=facts, environment=environment)
    findings = diagnose(evidence)
    return Explanation(
        source=source,
        lines=facts.lines,
        frameworks=tuple(facts.frameworks),
        device_map=tuple(facts.device_map),
        placements=tuple(facts.placements),
        ooms=judged(evidence, tuple(facts.ooms)),
        fallbacks=_fallbacks(facts, evidence, findings),
        missing_libraries=tuple(facts.missing_libraries),
        errors=tuple(facts.errors),
        findings=findings,
        primary=primary(findings),
        unrecognised=tuple(facts.unrecognised),
    )


def _fallbacks(facts: LogFacts, evidence: Evidence, findings: tuple[Finding, ...]) -> tuple[Fallback, ...]:
    """Ops whose request a log does tell: members of a colocation group that the placer moved."""
    ran_on = {placement.op: placement.actual for placement in facts.placements}
    counts: dict[tuple[str, str, str], int] = {}
    for report in facts.colocations:
        if report.failed:
            continue
        for member in report.members:
            actual = ran_on.get(member.op, "CPU:0" if report.supported == ("CPU",) else "")
            if member.requested.startswith("GPU") and actual.startswith("CPU"):
                key = (member.op, member.requested, actual)
                counts[key] = counts.get(key, 0) + 1
    if evidence.gpu_usable:
        reason, detail = "placement.no-kernel", "an op of its colocation group has no GPU kernel"
    else:
        reason, detail = no_gpu_cause(findings)
    return tuple(
        Fallback(op=op, requested=requested, actual=actual, reason=reason, detail=detail, count=count)
        for (op, requested, actual), count in counts.items()
    )
