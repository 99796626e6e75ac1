"""Which findings concern a user's program that has ended, and how severe they are for it."""

from __future__ import annotations

import re

from msgspec.structs import replace

from gpuwatch.core.model.causes import NO_GPU
from gpuwatch.core.model.ended_by_own_exception import ended_by_own_exception
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Run
from gpuwatch.explain.diagnosis.memory.oom_verdict import UNEXPLAINED_TITLES
from gpuwatch.explain.diagnosis.rule_engine import by_severity
from gpuwatch.explain.diagnosis.rules.child_processes import DESPITE_ERROR
from gpuwatch.explain.diagnosis.rules.idle_gpu_memory import CPU_SCOPE_TITLE
from gpuwatch.explain.diagnosis.rules.process_ends import ended_by
from gpuwatch.explain.diagnosis.rules.program_error_messages import ENDINGS
from gpuwatch.explain.diagnosis.rules.simulation_limits import SIMULATION_LIMIT
from gpuwatch.explain.diagnosis.runs.verdict_and_reason import (
    PLACEMENT_UNCHECKED,
    exited_with_code_0,
    placement_unchecked,
)
from gpuwatch.explain.logs.log_facts import LogFacts

_GPU_WORDS = re.compile(r"cud|gpu(?!watch)|nvidia|nvml|nccl|cublas|device|driver", re.IGNORECASE)


def relevant_findings(run: Run, log: LogFacts, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings that concern this program.

    A bare exit code is in the verdict and is not a cause. What ended a program comes before why it had no GPU, unless
    that may have ended it. A program without a framework did not request a GPU, so a machine without one is not its
    problem.
    """
    uses_framework = run.framework is not None or bool(log.frameworks) or bool(run.device_map)
    raised = any(error.type not in ("KeyboardInterrupt", "SystemExit") for error in (*run.errors, *log.errors))
    raised = raised or ended_by(run) is not None or any(topic in ENDINGS for topic in log.topics)
    stalled = any(found.id == "program.stalled" for found in findings)
    raised = raised or bool(run.killed_children) or (any(one.exit_code for one in run.processes) and not stalled)
    caught = exited_with_code_0(run) or ended_by_own_exception(run, run.outcome)
    ends = [found for found in findings if found.id == "unknown" and found.severity == "error"]
    # An end that has nothing to do with a GPU, by its title and its error.
    unrelated_to_gpus = any(not _GPU_WORDS.search(" ".join((found.title, *found.evidence[:1]))) for found in ends)
    failed_elsewhere = run.verdict == "error" and unrelated_to_gpus
    unexplained_moves = [entry.detail for entry in run.fallbacks if entry.reason == "unknown"]
    healthy = (
        uses_framework
        and run.verdict in ("ok", "fallback")
        and all(entry.reason == SIMULATION_LIMIT for entry in run.fallbacks)
    )
    healthy = healthy and not any(found.title.startswith((CPU_SCOPE_TITLE, DESPITE_ERROR)) for found in findings)
    relevant = []
    for found in findings:
        explains_end = raised or _is_about_memory(found) or any(detail in found.title for detail in unexplained_moves)
        without_gpu = found.id in NO_GPU and not uses_framework
        if without_gpu or (found.id == "unknown" and not explains_end) or (found.id == "healthy" and not healthy):
            continue
        if found.severity == "error" and (
            caught if _is_about_memory(found) else found.id in NO_GPU and failed_elsewhere
        ):
            lines = found.evidence
            if _is_about_memory(found) and exited_with_code_0(run):
                lines = ("the program continued after it, and exited with code 0", *lines)
            found = replace(found, severity="warning", evidence=lines)
        elif found.id == "healthy" and placement_unchecked(run):
            found = replace(found, title=f"{found.title}; {PLACEMENT_UNCHECKED}")
        relevant.append(found)
    return tuple(by_severity(relevant))


def _is_about_memory(found: Finding) -> bool:
    return found.id.startswith("memory.") or found.title in UNEXPLAINED_TITLES
