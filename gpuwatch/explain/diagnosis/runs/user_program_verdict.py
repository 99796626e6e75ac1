"""Verdict and findings of a user's own program, whose settings and exit are not planned as those of a probe are."""

from __future__ import annotations

import re

from msgspec.structs import replace

from gpuwatch.core.model.ended_by_own_exception import ended_apart
from gpuwatch.core.model.findings import CAUSES, NO_GPU, Finding
from gpuwatch.core.model.run import Run, Verdict
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.memory.oom_arithmetic import UNEXPLAINED
from gpuwatch.explain.diagnosis.rule_engine import by_severity
from gpuwatch.explain.diagnosis.rules.hidden_gpus import hides_its_gpus
from gpuwatch.explain.diagnosis.rules.idle_gpu_memory import BY_SCOPE
from gpuwatch.explain.diagnosis.rules.message_meanings import ENDINGS
from gpuwatch.explain.diagnosis.rules.op_placement import LIMIT
from gpuwatch.explain.diagnosis.rules.program_errors import DESPITE_ERROR, WENT_ON
from gpuwatch.explain.diagnosis.rules.signals import ended_by
from gpuwatch.explain.logs.log_facts import LogFacts

GROUP = "run"
DESPITE_OOM = "It exited with code 0, although memory ran out."
"""Reason of the verdict ``ok`` of a program that caught the error; whether it did all of its work is not known."""
_OF_GPU = re.compile(r"cud|gpu(?!watch)|nvidia|nvml|nccl|cublas|device|driver", re.IGNORECASE)
_NOT_LOOKED_AT = "where its ops ran was not checked (run --placement does that)"
_MIN_KNOWN_NODES_SHARE = 0.9
"""Share of graph nodes whose requested device must be known to say that there are no problems."""
_NO_REPLICA = "distribution.devices-missing"


def is_watched(run: Run) -> bool:
    """Whether this is a run of ``gpuwatch run`` rather than a probe."""
    return run.group == GROUP


def relevant_findings(run: Run, log: LogFacts, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings that concern this program.

    A bare exit code is in the verdict and is not a cause. What ended a program comes before why it had no GPU, unless
    that may have ended it. A program without a framework did not request a GPU, so a
    machine without one is not its problem.
    """
    asked = run.framework is not None or bool(log.frameworks) or bool(run.device_map)
    raised = any(error.type not in ("KeyboardInterrupt", "SystemExit") for error in (*run.errors, *log.errors))
    raised = raised or ended_by(run) is not None or any(topic in ENDINGS for topic in log.topics)
    stalled = any(found.id == "program.stalled" for found in findings)
    raised = raised or bool(run.killed_children) or (any(one.exit_code for one in run.processes) and not stalled)
    ended_well = run.verdict in ("ok", "fallback")
    caught = _exited_well(run) or ended_apart(run, run.outcome)
    elsewhere = run.verdict == "error" and any(_ended_otherwise(found) for found in findings)
    fell_back = any(entry.reason != LIMIT for entry in run.fallbacks)
    scoped = any(found.title.startswith(BY_SCOPE) for found in findings)
    moved = [entry.detail for entry in run.fallbacks if entry.reason == "unknown"]
    despite = any(found.title.startswith(DESPITE_ERROR) for found in findings)
    concerning = (
        _program_survived(found, run)
        if found.severity == "error" and ((_is_of_memory(found) and caught) or (found.id in NO_GPU and elsewhere))
        else replace(found, title=f"{found.title}; {_NOT_LOOKED_AT}")
        if found.id == "healthy" and _placement_unseen(run)
        else found
        for found in findings
        if not (
            found.id == "unknown"
            and not raised
            and not _is_of_memory(found)
            and not any(detail in found.title for detail in moved)
        )
        and not (found.id in NO_GPU and not asked)
        and not (found.id == "healthy" and (fell_back or scoped or despite or not (ended_well and asked)))
    )
    return tuple(by_severity(concerning))


def verdict_of(run: Run, verdict: Verdict, evidence: Evidence, main: str | None) -> Verdict:
    """``fallback`` if the work could only run on the CPU, even without a known op, or if replicas were misplaced.

    Who catches that memory ran out and exits with 0 has not failed: the verdict is ``ok``, the finding a warning.
    """
    if verdict == "oom" and _exited_well(run):
        return "ok"
    seen = run.framework is not None or (evidence.log is not None and bool(evidence.log.frameworks))
    on_cpu = seen and not evidence.gpu_usable and main in NO_GPU and not hides_its_gpus(evidence)
    return "fallback" if verdict == "ok" and (on_cpu or main == _NO_REPLICA) else verdict


def reason_of(run: Run, log: LogFacts, verdict: Verdict, findings: tuple[Finding, ...], main: str | None) -> str:
    """The verdict's reason in one sentence; empty if the general one applies."""
    if verdict == "fallback" and main == _NO_REPLICA:
        return f"{_title(findings, main)}."
    if verdict == "fallback" and main in NO_GPU and not Evidence(run=run, log=log).gpu_usable:
        return f"All of it ran on the CPU: {_title(findings, main)}."
    if verdict == "ok" and main == "visibility.hidden":
        return f"All of it ran on the CPU, as it requests. {_title(findings, main)}."
    if verdict == "ok" and _exited_well(run) and any(not oom.expected for oom in run.ooms):
        return DESPITE_OOM
    if verdict == "ok" and run.framework is None and not log.frameworks and not run.device_map:
        return "It succeeded; neither TensorFlow, PyTorch nor JAX was seen in it."
    if verdict == "ok" and (scoped := [found.title for found in findings if found.title.startswith(BY_SCOPE)]):
        return f"It succeeded. {scoped[0]}."
    despite = next((found.title for found in findings if found.title.startswith((DESPITE_ERROR, WENT_ON))), "")
    if verdict == "ok" and despite.startswith(DESPITE_ERROR):
        return f"{despite}."
    if verdict == "ok" and despite and all(found.severity == "info" for found in findings):
        return "It succeeded."
    if verdict == "ok" and main == "placement.no-kernel" and not run.fallbacks:
        return f"It succeeded. {_title(findings, main)}."
    if verdict == "ok" and not any(found.severity in ("error", "warning") for found in findings):
        return _without_problems(run) if run.device_map else "It succeeded."
    return ""


def _title(findings: tuple[Finding, ...], cause: str | None) -> str:
    return next((found.title for found in findings if found.id == cause), CAUSES[cause or "unknown"])


def _placement_unseen(run: Run) -> bool:
    return run.framework is not None and run.framework.name == "tensorflow" and "placement" not in run.settings


def _without_problems(run: Run) -> str:
    """With --placement only if nearly all requested devices are known, and with their share."""
    coverage = run.placement_coverage
    if _placement_unseen(run):
        return f"It succeeded; {_NOT_LOOKED_AT}."
    if coverage is None or not coverage.nodes:
        return "It succeeded without problems."
    known = 1 - coverage.unclear / coverage.nodes
    share = f"the requested devices of {int(100 * known)} % of {coverage.nodes} graph nodes are known"
    return (
        f"It succeeded without problems: {share}."
        if known >= _MIN_KNOWN_NODES_SHARE
        else f"It succeeded; only {share}."
    )


def _ended_otherwise(found: Finding) -> bool:
    """Whether a finding is about an end that has nothing to do with a GPU, by its title and its error."""
    said = " ".join((found.title, *found.evidence[:1]))
    return found.id == "unknown" and found.severity == "error" and _OF_GPU.search(said) is None


def _program_survived(found: Finding, run: Run) -> Finding:
    if _is_of_memory(found) and _exited_well(run):
        found = replace(found, evidence=("the program continued after it, and exited with code 0", *found.evidence))
    return replace(found, severity="warning")


def _is_of_memory(found: Finding) -> bool:
    return found.id.startswith("memory.") or found.title in UNEXPLAINED


def _exited_well(run: Run) -> bool:
    """Whether the program ended by itself, with exit code 0."""
    return run.verdict in ("ok", "fallback") and run.outcome.exit_code == 0
