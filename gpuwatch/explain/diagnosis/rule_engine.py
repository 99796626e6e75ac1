"""Runs the rules, joins and sorts their findings, and picks the primary cause.

One rule is declared here, since it needs all conditions: what they show in a single sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpuwatch.core.model.causes import CAUSES, ENDED_WORK, NO_GPU
from gpuwatch.core.model.findings import SEVERITY_ORDER, Finding
from gpuwatch.explain.diagnosis.conditions import (  # noqa: F401 - they declare conditions; to add one: one name here
    error_counters,
    gpu_faults,
    idle_and_unexplained_memory,
    input_bound,
    memory_filling,
    pcie_link,
    program_on_cpu,
    throttling,
)
from gpuwatch.explain.diagnosis.conditions.condition import Occurrence, conditions
from gpuwatch.explain.diagnosis.conditions.sample_context import SampleContext, SampleHistory
from gpuwatch.explain.diagnosis.evidence import NO_LOG, Evidence
from gpuwatch.explain.diagnosis.rule_registry import RULES, Rule, finding, healthy_finding, rule, warning_finding
from gpuwatch.explain.diagnosis.rules import gpu_sharing

if TYPE_CHECKING:
    from gpuwatch.explain.diagnosis.doctor.check import Facts

_HIDDEN_GPU_CAUSES = ("visibility.hidden", "visibility.bad-ordinal")
_Key = tuple[str, str | None, int | None, str]
_MIN_TITLE_QUOTE_CHARS = 60
"""Characters at the beginning of a line that are in a title which quotes it, also if it is shortened."""
_MIN_EQUAL_CHARS = 12
"""Characters from which equal text in two findings is the same log line."""
CAUSE_RANK = {cause: rank for rank, cause in enumerate((*ENDED_WORK, *NO_GPU))}
"""Of causes that can be the primary one: the lowest comes first."""
_FIRST_NO_GPU = CAUSE_RANK[NO_GPU[0]]
_CONDITIONS = tuple(condition for condition in conditions() if condition.reported_from_one_sample)


@rule(*dict.fromkeys(cause for condition in _CONDITIONS for cause in condition.causes), replaces_conditions=True)
def momentary_conditions(evidence: Evidence) -> Iterator[Finding]:
    """What holds in this sample, regardless of how long; of a run only what concerns its GPUs."""
    snapshot = evidence.snapshot
    if snapshot is None:
        return
    at = snapshot.taken_at.timestamp()
    context = SampleContext(snapshot, at, 0.0, SampleHistory())
    context.add_to_history()
    mappings = evidence.run.device_map if evidence.run is not None else ()
    used_uuids = {mapping.uuid for mapping in mappings if mapping.uuid}
    for condition in _CONDITIONS:
        for sign in condition.signs(context):
            if not sign.holds or (sign.process is not None and evidence.run is not None):
                continue
            other_gpu = used_uuids and sign.device is not None and sign.device.uuid not in used_uuids
            if other_gpu and not condition.judges_lost_gpus:
                continue  # of the others only what may be why it did not get them
            occurrence = Occurrence.from_first_sign(sign, at, 0.0, 0.0, first=True)
            if occurrence.known_before_seconds and occurrence.known_before_seconds < condition.report_after_seconds:
                continue  # since when is known, and that is too short
            occurrence.add(sign, at, 0.0)
            found = condition.finding(occurrence, context)
            if found is not None and condition.is_listed(occurrence, context):
                yield found


def diagnose(evidence: Evidence, rules: Iterable[Rule] | None = None) -> tuple[Finding, ...]:
    """All findings, most severe first; deterministic for the same evidence."""
    findings = _deduplicated(rule_results(rules_for(evidence) if rules is None else rules, evidence), evidence)
    if evidence.is_log_alone:
        from gpuwatch.explain.diagnosis.reference.advice_table import with_advice

        findings = [with_advice(result, evidence) for result in findings]
    return tuple(findings)


def rules_for(evidence: Evidence) -> list[Rule]:
    """The rules that may find something in this evidence."""
    snapshot = evidence.snapshot
    works = snapshot is not None and snapshot.driver is not None and snapshot.devices and not snapshot.problems
    if works and evidence.run is None and evidence.log is NO_LOG and not evidence.environment:
        # Rules of programs, logs and silent drivers are imported where there are such: it takes longer than a snapshot.
        modules = (__name__, gpu_sharing.__name__)
        return [entry for entry in RULES["evidence"] if entry.find.__module__ in modules]
    from gpuwatch.explain.diagnosis.rules import (  # noqa: F401 - they declare rules; to add a module: one name here
        causes_stated_in_log,
        child_processes,
        driver_failures,
        error_evidence,
        framework_build,
        gpu_environment_variables,
        granted_gpus_and_memory,
        idle_gpu_memory,
        ineffective_settings,
        missing_gpus,
        op_placement,
        out_of_memory,
        reported_gpu_faults,
        simulation_limits,
        stalls,
        tf_function_use,
        unexplained_failures,
    )

    return RULES["evidence"]


def diagnose_machine(facts: Facts, run_findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings of a machine, most severe first: those of its run, and what only the doctor's facts show."""
    found = [found for found in run_findings if found.id != "healthy"]
    for entry in RULES["machine"]:
        unless = entry.unless
        explained = unless is not None and any(item.severity == "error" or item.id in unless for item in found)
        for result in () if explained else rule_results([entry], facts):
            found = _with_joined(found, result)
    return tuple(_deduplicated(_hidden_as_warnings(found) if facts.lacks_libcuda else found, Evidence()))


def _deduplicated(results: Iterable[Finding], evidence: Evidence) -> list[Finding]:
    """By the rules of rank: one finding of each kind, each line with one meaning, most severe first."""
    found: dict[_Key, Finding] = {}
    for result in results:
        key = (result.id, result.device_uuid, result.pid, result.title)
        same = found.get(key)
        if same is None or SEVERITY_ORDER[result.severity] < SEVERITY_ORDER[same.severity]:
            found[key] = result
    for key in _explained_failures(found):
        del found[key]
    has_healthy = any(result.id == "healthy" for result in found.values())
    causes = filter(_is_of_program_or_machine, found.values())
    if not has_healthy and all(result.severity == "info" and result.id not in CAUSE_RANK for result in causes):
        healthy = healthy_finding()
        if evidence.is_log_alone:  # which allows a weaker claim than a run or a machine
            from gpuwatch.explain.diagnosis.log_without_finding import default_finding

            healthy = default_finding(evidence.log, found.values())
        found[healthy.id, None, None, ""] = healthy
    return by_severity(found.values())


def _with_joined(findings: list[Finding], found: Finding) -> list[Finding]:
    """``findings`` with another one, one per cause and device: the higher severity, all evidence, the newer action."""
    for index, other in enumerate(findings):
        if other.id == found.id != "unknown" and other.device_uuid == found.device_uuid:
            merged = finding(
                found.id,
                min(other.severity, found.severity, key=SEVERITY_ORDER.__getitem__),
                "fact" if "fact" in (other.certainty, found.certainty) else "likely",
                title=other.title if found.title == CAUSES[found.id] else found.title,
                evidence=(*found.evidence, *other.evidence),
                action=found.action or other.action,
                device_uuid=other.device_uuid,
                pid=other.pid,
            )
            return [*findings[:index], merged, *findings[index + 1 :]]
    return [*findings, found]


def _hidden_as_warnings(found: list[Finding]) -> list[Finding]:
    """Without libcuda no program can use a GPU, so what hides GPUs is only a warning then."""
    if not any(item.id.startswith("driver.") and item.severity == "error" for item in found):
        return found
    hidden = [item for item in found if item.id in _HIDDEN_GPU_CAUSES and item.severity != "info"]
    return [replace(item, severity="warning") if item in hidden else item for item in found]


def rule_results(rules: Iterable[Rule], rule_input: object) -> Iterator[Finding]:
    """What rules find in their input; a rule that raises is reported as a finding, and the others still run."""
    for entry in rules:
        try:
            yield from tuple(entry.find(rule_input))
        except Exception as error:  # noqa: BLE001 - reported as a finding
            yield broken_rule_finding(entry.name, entry.causes, error)


def _explained_failures(found: Mapping[_Key, Finding]) -> list[_Key]:
    """Unrecognized failures whose line is evidence for another cause: a line has one meaning."""
    unexplained = ("unknown", "healthy", "program.error")
    explained_lines = [line for item in found.values() if item.id not in unexplained for line in item.evidence]
    return [
        key
        for key, item in found.items()
        for line in item.evidence[:1]
        if item.id in ("unknown", "program.error") and line[:_MIN_TITLE_QUOTE_CHARS] in item.title
        if any(_is_same_message(line, other) for other in explained_lines)
    ]


def _is_same_message(line: str, other: str) -> bool:
    """Whether one line contains what the other says after its heading."""
    text, other_text = line.partition(": ")[2].strip() or line.strip(), other.partition(": ")[2].strip()
    other_within = len(other_text) >= _MIN_EQUAL_CHARS and other_text in text
    return len(text) >= _MIN_EQUAL_CHARS and (text in other or other_within)


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Sorted by severity, then by the order of causes."""
    return sorted(findings, key=_order)


def primary_cause(findings: Iterable[Finding]) -> str | None:
    """The cause to show first; ``healthy`` if nothing is wrong, ``unknown`` if that is the only finding, None without
    findings.

    An expected outcome has severity ``info`` and never outranks a real finding.
    """
    ordered = by_severity(findings)
    problems = (found.id for found in ordered if found.severity != "info" and _is_of_program_or_machine(found))
    ranked = (found.id for found in ordered if found.id in CAUSE_RANK)
    if (first := next(chain(problems, ranked), None)) is not None:
        return first
    ids = {found.id for found in ordered}
    return None if not ids else "unknown" if "unknown" in ids and "healthy" not in ids else "healthy"


def _is_of_program_or_machine(found: Finding) -> bool:
    """Whether it is about the program or machine: a limit of a simulated GPU is not, unless it ended the work."""
    return found.id != "simulation.limit" or found.severity == "error"


def _order(found: Finding) -> tuple[int, bool, int, str, str, int]:
    """Of two reasons why no GPU was usable, one that was reported comes before one that was inferred: a library that
    "cannot be loaded" may follow from its wrong version, which the log states. Both come before a program's own error,
    such as that of an import."""
    rank = CAUSE_RANK.get(found.id, len(CAUSE_RANK) + (found.id in ("unknown", "healthy")))
    inferred = rank >= _FIRST_NO_GPU and (found.certainty == "likely" or found.id not in CAUSE_RANK)
    return (SEVERITY_ORDER[found.severity], inferred, rank, found.id, found.device_uuid or "", found.pid or 0)


def broken_rule_finding(name: str, causes: Iterable[str], error: Exception) -> Finding:
    """The warning that a rule raised an exception, so that it found nothing."""
    return warning_finding(
        "unknown",
        title=f"gpuwatch's own rule {name} failed",
        evidence=(f"{type(error).__name__}: {error}", f"causes it checks: {', '.join(causes)}"),
        action="Report this as a gpuwatch bug; the other findings are complete.",
    )
