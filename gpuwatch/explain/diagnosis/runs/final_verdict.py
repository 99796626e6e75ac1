"""The verdict on a run that has ended, and its reason in one sentence.

A user's own program is judged by rules of its own: its settings and exit are not planned as those of a probe are.
"""

from __future__ import annotations

import re

from gpuwatch.core.formatting.sentences import and_more
from gpuwatch.core.formatting.units import memory
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.causes import CAUSES, NO_GPU
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Outcome, Run, Verdict
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rules.child_processes import EXIT_0_TITLE
from gpuwatch.explain.diagnosis.rules.idle_gpu_memory import CPU_SCOPE_TITLE
from gpuwatch.explain.diagnosis.rules.missing_gpus import hidden_on_purpose, hides_its_gpus
from gpuwatch.explain.diagnosis.rules.simulation_limits import SIMULATION_LIMIT
from gpuwatch.explain.diagnosis.rules.unexplained_failures import CONTINUED_TITLE
from gpuwatch.explain.logs.message_topics import topics_of
from gpuwatch.explain.logs.python_exceptions import essential_line

DESPITE_OOM = "It exited with code 0, although memory ran out."
"""Reason of the verdict ``ok`` of a program that caught the error; whether it did all of its work is not known."""
_DATA_SET_OP = re.compile(r"Dataset(?:V\d+)?$|Iterator(?:V\d+)?$|^DummySeedGenerator$")
"""Ops that make a data set: TensorFlow keeps them on the CPU by design, whatever scope they are made in."""
PLACEMENT_UNCHECKED = "where its ops ran was not checked (run --placement does that)"
_MIN_KNOWN_NODES_SHARE = 0.9
"""Share of graph nodes whose requested device must be known to say that there are no problems."""
_MISSING_REPLICA_DEVICES = "distribution.devices-missing"


def verdict_of(run: Run, evidence: Evidence, primary: str | None) -> Verdict:
    """The runner's verdict, refined: a crash after an OOM is an OOM, work on the CPU a fallback.

    A user's program that catches that memory ran out and exits with 0 has not failed: the verdict is ``ok``, the
    finding a warning. It is ``fallback`` also without a known op, if the work could only run on the CPU, or if replicas
    were misplaced.
    """
    if run.verdict in ("skipped", "timeout", "oom", "interrupted"):
        return run.verdict
    if any(not oom.expected for oom in run.ooms) and not ended_by_own_exception(run, run.outcome):
        return "ok" if run.is_program and exited_with_code_0(run) else "oom"
    if run.verdict == "error":
        return "error"
    fallbacks = (entry.op for entry in run.fallbacks if entry.reason != SIMULATION_LIMIT)
    has_fallbacks = any(_DATA_SET_OP.search(op) is None for op in fallbacks)
    seen = run.framework is not None or bool(evidence.log.frameworks)
    on_cpu = seen and not evidence.gpu_usable and primary in NO_GPU and not hides_its_gpus(evidence)
    return "fallback" if has_fallbacks or (run.is_program and (on_cpu or primary == _MISSING_REPLICA_DEVICES)) else "ok"


def _rounds_text(run: Run) -> str:
    """How the processes of each round ended, if there were several rounds; else empty."""
    rounds = group_by(run.workers, lambda worker: worker.setting)
    failed = {name: [w for w in workers if w.verdict != "ok"] for name, workers in rounds.items()}
    if len(rounds) < 2 or not any(failed.values()):
        return ""
    parts = []
    for name, workers in ((name, workers) for name, workers in failed.items() if workers):
        who = " and the ".join(worker.name for worker in workers)
        end = "ran out of memory" if all(worker.verdict == "oom" for worker in workers) else "failed"
        others = [worker for worker in rounds[name] if worker.verdict == "ok"]
        held = max((worker.nvml_bytes or worker.granted_bytes or 0 for worker in others), default=0)
        beside = f" alongside the {others[0].name}, which held {memory(held)}" if others and held else ""
        parts.append(f"with {name} the {who} process {end}{beside}")
    if succeeded := [name for name, workers in failed.items() if not workers]:
        parts.append(f"with {', '.join(succeeded)} both succeeded")
    expected = bool(run.ooms) and all(oom.expected for oom in run.ooms)
    text = "; ".join(parts) + (" (expected)" if expected else "")
    return f"{text[:1].upper()}{text[1:]}."


def _moved_text(run: Run) -> str:
    """``AddV2 and 3 more ran on GPU:0 instead of GPU:7: …``, two requests at most."""
    fallbacks = (entry for entry in run.fallbacks if entry.reason != SIMULATION_LIMIT)
    groups = group_by(fallbacks, lambda entry: (entry.requested, entry.actual, entry.reason))
    parts = []
    for (requested, actual, reason), group in list(groups.items())[:2]:
        kinds = list(dict.fromkeys(fallback.kind if run.is_program else fallback.op for fallback in group))
        more = and_more(len(kinds) - 1)
        asked = "" if requested == "auto" else f" instead of {requested}"
        why = group[0].detail if reason == "unknown" and group[0].detail else CAUSES.get(reason, reason)
        parts.append(f"{kinds[0]}{more} ran on {actual}{asked}: {why}.")
    if len(groups) > 2:
        parts.append("Others fell back too, each with its reason below.")
    return " ".join(parts)


def _general_reason(
    run: Run, verdict: Verdict, findings: tuple[Finding, ...], primary: str | None, on_purpose: bool
) -> str:
    """The verdict's reason in one sentence."""
    if verdict == "oom" and (rounds := _rounds_text(run)):
        return rounds
    if verdict == "oom" and run.ooms:
        cause = next((oom.verdict for oom in run.ooms if oom.verdict and not oom.expected), run.ooms[0].verdict)
        expected = " (expected)" if all(oom.expected for oom in run.ooms) else ""
        return f"{_title(findings, cause)}{expected}."
    if verdict == "fallback":
        return _moved_text(run)
    if verdict == "timeout":
        return "The probe did not finish before its deadline."
    if verdict == "error":
        for last in [error for error in run.errors if not error.expected][-1:]:
            return f"{last.type}: {essential_line(last.message)[:200] or 'no message'}"
        return f"The probe failed: {run.outcome.text}."
    if verdict == "skipped":
        return "This probe does not apply to this machine."
    if on_purpose:
        return "The work ran on the CPU, as requested: every GPU was hidden."
    for error in [error for error in run.errors if error.expected][:1]:
        meant = next((topic for topic in topics_of(error.message) if topic in CAUSES), primary or "")
        return f"The expected error, {error.type}: {CAUSES.get(meant, 'the subject of this probe')}."
    for found in findings:
        if found.severity in ("error", "warning"):
            return f"Ran, with {'an error' if found.severity == 'error' else 'a warning'}: {found.title}."
    return "Ran on the requested device."


def reason_of(
    run: Run, evidence: Evidence, verdict: Verdict, findings: tuple[Finding, ...], primary: str | None
) -> str:
    """The verdict's reason in one sentence. ``primary``: the id of the primary cause.

    Of a program that exited with 0, the run's own reason is the signal that it handled: that is added.
    """
    own = _program_reason(run, evidence, verdict, findings, primary) if run.is_program else ""
    reason = own or _general_reason(run, verdict, findings, primary, hidden_on_purpose(evidence, findings))
    handled = run.verdict_reason if run.is_program and exited_with_code_0(run) else ""
    if not handled:
        return reason
    return f"It succeeded; {handled[:1].lower()}{handled[1:]}" if reason == "It succeeded." else f"{reason} {handled}"


def _program_reason(
    run: Run, evidence: Evidence, verdict: Verdict, findings: tuple[Finding, ...], primary: str | None
) -> str:
    """The verdict's reason in one sentence; empty if the general one applies."""
    title = _title(findings, primary)
    if verdict == "fallback" and primary == _MISSING_REPLICA_DEVICES:
        return f"{title}."
    if verdict == "fallback" and primary in NO_GPU and not evidence.gpu_usable:
        return f"All of it ran on the CPU: {title}."
    if verdict != "ok":
        return ""
    if primary == "visibility.hidden":
        return f"All of it ran on the CPU, as it requests. {title}."
    if exited_with_code_0(run) and any(not oom.expected for oom in run.ooms):
        return DESPITE_OOM
    if run.framework is None and not evidence.log.frameworks and not run.device_map:
        return "It succeeded; neither TensorFlow, PyTorch nor JAX was seen in it."
    if scoped := [found.title for found in findings if found.title.startswith(CPU_SCOPE_TITLE)]:
        return f"It succeeded. {scoped[0]}."
    despite = next((found.title for found in findings if found.title.startswith((EXIT_0_TITLE, CONTINUED_TITLE))), "")
    if despite.startswith(EXIT_0_TITLE):
        return f"{despite}."
    if despite and all(found.severity == "info" for found in findings):
        return "It succeeded."
    if primary == "placement.no-kernel" and not run.fallbacks:
        return f"It succeeded. {title}."
    if any(found.severity in ("error", "warning") for found in findings):
        return ""
    if pytorch_used_no_gpu(run):
        return "It succeeded, on the CPU: PyTorch uses a GPU only for models and tensors that the program moves to it."
    return _without_problems(run) if run.device_map else "It succeeded."


def pytorch_used_no_gpu(run: Run) -> bool:
    """Whether a PyTorch program could have used a GPU, and did not: PyTorch starts CUDA at the first use of one."""
    torch = run.framework is not None and run.framework.name == "torch" and run.framework.gpu_build
    seen = run.memory.nvml_peak_bytes or any(process.device_map or process.held_bytes for process in run.processes)
    return bool(torch and run.gpus and not run.device_map and not seen)


def _title(findings: tuple[Finding, ...], cause: str | None) -> str:
    return next((found.title for found in findings if found.id == cause), CAUSES[cause or "unknown"])


def placement_unchecked(run: Run) -> bool:
    """Whether a program used TensorFlow without ``--placement``."""
    return run.framework is not None and run.framework.name == "tensorflow" and "placement" not in run.settings


def _without_problems(run: Run) -> str:
    """With --placement only if nearly all requested devices are known, and with their share."""
    coverage = run.placement_coverage
    if placement_unchecked(run):
        return f"It succeeded; {PLACEMENT_UNCHECKED}."
    if coverage is None or not coverage.nodes:
        return "It succeeded without problems."
    known = 1 - coverage.unclear / coverage.nodes
    share = f"the requested devices of {int(100 * known)} % of {coverage.nodes} graph nodes are known"
    return (
        f"It succeeded without problems: {share}."
        if known >= _MIN_KNOWN_NODES_SHARE
        else f"It succeeded; only {share}."
    )


def exited_with_code_0(run: Run) -> bool:
    """Whether the program ended by itself, with exit code 0."""
    return run.verdict in ("ok", "fallback") and run.outcome.exit_code == 0


_GPU_WORDS = re.compile(
    r"memory|exhausted|alloc|\boom\b|cuda|cudnn|cublas|cusolver|nccl|gpu|device|worker|kill", re.IGNORECASE
)


def ended_by_own_exception(run: Run, outcome: Outcome) -> bool:
    """Whether an exception of the program's own ended it after it had caught an out-of-memory error.

    Only where that is sure: one process, an exception that no other one led to, with nothing of a GPU in its words.
    """
    errors = [error for error in run.errors if not error.expected]
    if not outcome.exit_code or not errors or len(run.processes) > 1 or run.killed_children:
        return False
    last = errors[-1]
    return last.alone and _GPU_WORDS.search(f"{last.type} {last.message}") is None
