"""Turns the runner's draft into a finished run: device map joined, verdict and findings added.

A user's own program is judged by rules of its own: its settings and exit are not planned as those of a probe are.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from gpuwatch.core.formatting.sentences import and_more
from gpuwatch.core.formatting.units import memory
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.causes import CAUSES, NO_GPU
from gpuwatch.core.model.ended_by_own_exception import ended_by_own_exception
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import DeviceMapping, Oom, PredictedMapping, Run, Verdict
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.model.visible_devices import visible_devices
from gpuwatch.explain.diagnosis.evidence import Evidence, device_behind
from gpuwatch.explain.diagnosis.memory.oom_arithmetic import UNEXPLAINED_TITLES
from gpuwatch.explain.diagnosis.memory.oom_verdict import with_verdicts
from gpuwatch.explain.diagnosis.rule_engine import by_severity, diagnose, primary_cause
from gpuwatch.explain.diagnosis.rules.child_processes import DESPITE_ERROR
from gpuwatch.explain.diagnosis.rules.hidden_gpus import hides_its_gpus
from gpuwatch.explain.diagnosis.rules.idle_gpu_memory import BY_SCOPE
from gpuwatch.explain.diagnosis.rules.op_placement import LIMIT
from gpuwatch.explain.diagnosis.rules.program_error_messages import ENDINGS
from gpuwatch.explain.diagnosis.rules.signals import ended_by
from gpuwatch.explain.diagnosis.rules.unexplained_failures import WENT_ON
from gpuwatch.explain.diagnosis.runs.op_fallbacks import fallbacks_in_log, find_fallbacks, hidden_on_purpose
from gpuwatch.explain.diagnosis.runs.tensorflow_device_prediction import predict, requested_devices_of
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.log_parser import parse
from gpuwatch.explain.logs.message_topics import topics_of
from gpuwatch.explain.logs.oom_collector import is_out_of_memory_error
from gpuwatch.explain.logs.python_exceptions import essential_line
from gpuwatch.explain.logs.sizes_and_device_names import device_name
from gpuwatch.sim.simulated_machine import context_bytes

DESPITE_OOM = "It exited with code 0, although memory ran out."
"""Reason of the verdict ``ok`` of a program that caught the error; whether it did all of its work is not known."""
_OF_A_PIPELINE = re.compile(r"Dataset(?:V\d+)?$|Iterator(?:V\d+)?$|^DummySeedGenerator$")
"""Ops that make a data set: TensorFlow keeps them on the CPU by design, whatever scope they are made in."""
_OF_GPU = re.compile(r"cud|gpu(?!watch)|nvidia|nvml|nccl|cublas|device|driver", re.IGNORECASE)
_PLACEMENT_UNCHECKED = "where its ops ran was not checked (run --placement does that)"
_MIN_KNOWN_NODES_SHARE = 0.9
"""Share of graph nodes whose requested device must be known to say that there are no problems."""
_NO_REPLICA = "distribution.devices-missing"


def complete(run: Run, log: LogFacts, before: Snapshot | None) -> Run:
    """The finished run: joins the device map, and adds verdict and findings to the draft.

    ``run`` is the draft with the runner's observations (events, exit, ``verdict`` ok, error, oom, timeout or skipped);
    ``log`` the parsed log of the framework; ``before`` the machine before the start.
    """

    def evidence_of(run: Run) -> Evidence:
        return Evidence(snapshot=before, run=run, log=log, environment=run.environment)

    run = replace(
        run,
        device_map=_joined_map(run.device_map or tuple(log.device_map), before, Evidence(run=run)),
        placements=run.placements or tuple(log.placements),
        ooms=run.ooms or tuple(log.ooms or parse("\n".join(error.message for error in run.errors)).ooms),
        missing_libraries=run.missing_libraries or tuple(log.missing_libraries),
        processes=tuple(
            replace(
                process, device_map=_joined_map(process.device_map, before, Evidence(environment=process.environment))
            )
            for process in run.processes
        ),
    )
    run = replace(run, predicted=_predicted_map(run, before))
    ooms = tuple(_with_limit(run, oom) for oom in _with_expected_ooms(run))
    run = replace(run, ooms=with_verdicts(evidence_of(run), ooms))
    evidence = evidence_of(run)
    first = diagnose(evidence)
    moved = find_fallbacks(run, evidence, first)
    run = replace(run, fallbacks=moved or (fallbacks_in_log(log, evidence, first) if run.is_program else ()))
    findings = diagnose(evidence_of(run))
    if run.is_program:
        findings = _relevant_findings(run, log, findings)
    main = primary_cause(findings)
    verdict = _verdict(run, evidence, main)
    if verdict == "skipped":  # healthy requires a run
        findings = tuple(found for found in findings if found.id != "healthy")
        main = primary_cause(findings)
        main = None if main == "healthy" else main
    elif verdict == "fallback" and main == "healthy":
        main = next((entry.reason for entry in run.fallbacks if entry.reason != LIMIT), main)
    reason = run.verdict_reason
    if not reason or verdict != run.verdict or verdict == "oom":
        # The runner's "It ran out of memory." says less than the numbers.
        own = _program_reason(run, evidence, verdict, findings, main) if run.is_program else ""
        reason = own or _reason(run, verdict, findings, main, hidden_on_purpose(evidence, findings))
    return replace(run, verdict=verdict, verdict_reason=reason, findings=findings, primary=main)


def _predicted_map(run: Run, before: Snapshot | None) -> tuple[PredictedMapping, ...] | None:
    """The prediction; None for several processes, a probe that never reached its devices, or a user's program, whose
    settings are its own."""
    unplanned = run.is_program or bool(run.workers) or run.verdict in ("skipped", "timeout")
    if before is None or run.framework is None or unplanned:
        return None
    contexts = {}
    if run.simulation is not None:
        totals = {device.uuid: device.number("memory.total_bytes") for device in before.devices if device.simulated}
        contexts = {uuid: context_bytes(int(total)) for uuid, total in totals.items() if total is not None}
    return predict(
        before, requested_devices_of(run), framework=run.framework, simulation=run.simulation, context_bytes=contexts
    )


def _with_expected_ooms(run: Run) -> tuple[Oom, ...]:
    """Marks the OOMs that the probe provoked, which only its events tell."""
    refused = [error for error in run.errors if is_out_of_memory_error(error)]
    if not refused or not all(error.expected for error in refused):
        return run.ooms
    return tuple(replace(oom, expected=True) for oom in run.ooms)


def _with_limit(run: Run, oom: Oom) -> Oom:
    """XLA's failures name no limit of TensorFlow's allocator, which is what it granted itself there."""
    if oom.limit_bytes is not None or not (oom.allocator or "").endswith("_bfc"):
        return oom
    granted = {device_name(mapping.framework_device): mapping.granted_bytes for mapping in run.device_map}
    return replace(oom, limit_bytes=granted.get(oom.device or ""))


def _joined_map(
    mappings: tuple[DeviceMapping, ...], before: Snapshot | None, saw: Evidence
) -> tuple[DeviceMapping, ...]:
    """The map with physical GPUs: by PCI address, or by CUDA's numbering if the framework prints none.

    ``saw`` is the environment of the mapped process.
    """
    if before is None:
        return mappings
    order = saw.variables.get("CUDA_DEVICE_ORDER")
    seen = visible_devices(saw.visible_devices, order, before.devices)
    ordinals = {entry.ordinal: entry.uuid for entry in seen.map}
    joined = []
    for mapping in mappings:
        device = device_behind(mapping, before.devices)
        if device is None and mapping.pci_bus_id is None and mapping.cuda_ordinal is not None:
            device = before.device(ordinals.get(mapping.cuda_ordinal))
        if device is not None:
            mapping = replace(
                mapping,
                physical_index=device.index,
                uuid=device.uuid,
                pci_bus_id=device.pci_bus_id,
                name=device.name or mapping.name,  # plugins give every device the same name
                compute_capability=mapping.compute_capability or device.compute_capability,
            )
        joined.append(mapping)
    return tuple(joined)


def _verdict(run: Run, evidence: Evidence, main: str | None) -> Verdict:
    """The runner's verdict, refined: a crash after an OOM is an OOM, work on the CPU a fallback.

    A user's program that catches that memory ran out and exits with 0 has not failed: the verdict is ``ok``, the
    finding a warning. It is ``fallback`` also without a known op, if the work could only run on the CPU, or if replicas
    were misplaced.
    """
    if run.verdict in ("skipped", "timeout", "oom", "interrupted"):
        return run.verdict
    if any(not oom.expected for oom in run.ooms) and not ended_by_own_exception(run, run.outcome):
        return "ok" if run.is_program and _exited_well(run) else "oom"
    if run.verdict == "error":
        return "error"
    fell = any(entry.reason != LIMIT and _OF_A_PIPELINE.search(entry.op) is None for entry in run.fallbacks)
    seen = run.framework is not None or bool(evidence.log.frameworks)
    on_cpu = seen and not evidence.gpu_usable and main in NO_GPU and not hides_its_gpus(evidence)
    return "fallback" if fell or (run.is_program and (on_cpu or main == _NO_REPLICA)) else "ok"


def _rounds(run: Run) -> str:
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
    if lived := [name for name, workers in failed.items() if not workers]:
        parts.append(f"with {', '.join(lived)} both succeeded")
    expected = bool(run.ooms) and all(oom.expected for oom in run.ooms)
    text = "; ".join(parts) + (" (expected)" if expected else "")
    return f"{text[:1].upper()}{text[1:]}."


def _moved_text(run: Run) -> str:
    """``AddV2 and 3 more ran on GPU:0 instead of GPU:7: …``, two requests at most."""
    fell = (entry for entry in run.fallbacks if entry.reason != LIMIT)
    groups = group_by(fell, lambda entry: (entry.requested, entry.actual, entry.reason))
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


def _reason(run: Run, verdict: Verdict, findings: tuple[Finding, ...], main: str | None, on_purpose: bool) -> str:
    """The verdict's reason in one sentence."""
    if verdict == "oom" and (complaint := _rounds(run)):
        return complaint
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
        meant = next((topic for topic in topics_of(error.message) if topic in CAUSES), main or "")
        return f"The expected error, {error.type}: {CAUSES.get(meant, 'the subject of this probe')}."
    for found in findings:
        if found.severity in ("error", "warning"):
            return f"Ran, with {'an error' if found.severity == 'error' else 'a warning'}: {found.title}."
    return "Ran on the requested device."


def _relevant_findings(run: Run, log: LogFacts, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings that concern this program.

    A bare exit code is in the verdict and is not a cause. What ended a program comes before why it had no GPU, unless
    that may have ended it. A program without a framework did not request a GPU, so a machine without one is not its
    problem.
    """
    asked = run.framework is not None or bool(log.frameworks) or bool(run.device_map)
    raised = any(error.type not in ("KeyboardInterrupt", "SystemExit") for error in (*run.errors, *log.errors))
    raised = raised or ended_by(run) is not None or any(topic in ENDINGS for topic in log.topics)
    stalled = any(found.id == "program.stalled" for found in findings)
    raised = raised or bool(run.killed_children) or (any(one.exit_code for one in run.processes) and not stalled)
    caught = _exited_well(run) or ended_by_own_exception(run, run.outcome)
    ends = [found for found in findings if found.id == "unknown" and found.severity == "error"]
    # An end that has nothing to do with a GPU, by its title and its error.
    apart = any(not _OF_GPU.search(" ".join((found.title, *found.evidence[:1]))) for found in ends)
    elsewhere = run.verdict == "error" and apart
    moved = [entry.detail for entry in run.fallbacks if entry.reason == "unknown"]
    healthy = asked and run.verdict in ("ok", "fallback") and all(entry.reason == LIMIT for entry in run.fallbacks)
    healthy = healthy and not any(found.title.startswith((BY_SCOPE, DESPITE_ERROR)) for found in findings)
    concerning = []
    for found in findings:
        told = raised or _is_of_memory(found) or any(detail in found.title for detail in moved)
        without_gpu = found.id in NO_GPU and not asked
        if without_gpu or (found.id == "unknown" and not told) or (found.id == "healthy" and not healthy):
            continue
        if found.severity == "error" and (caught if _is_of_memory(found) else found.id in NO_GPU and elsewhere):
            lines = found.evidence
            if _is_of_memory(found) and _exited_well(run):
                lines = ("the program continued after it, and exited with code 0", *lines)
            found = replace(found, severity="warning", evidence=lines)
        elif found.id == "healthy" and _placement_unseen(run):
            found = replace(found, title=f"{found.title}; {_PLACEMENT_UNCHECKED}")
        concerning.append(found)
    return tuple(by_severity(concerning))


def _program_reason(
    run: Run, evidence: Evidence, verdict: Verdict, findings: tuple[Finding, ...], main: str | None
) -> str:
    """The verdict's reason in one sentence; empty if the general one applies."""
    title = _title(findings, main)
    if verdict == "fallback" and main == _NO_REPLICA:
        return f"{title}."
    if verdict == "fallback" and main in NO_GPU and not evidence.gpu_usable:
        return f"All of it ran on the CPU: {title}."
    if verdict != "ok":
        return ""
    if main == "visibility.hidden":
        return f"All of it ran on the CPU, as it requests. {title}."
    if _exited_well(run) and any(not oom.expected for oom in run.ooms):
        return DESPITE_OOM
    if run.framework is None and not evidence.log.frameworks and not run.device_map:
        return "It succeeded; neither TensorFlow, PyTorch nor JAX was seen in it."
    if scoped := [found.title for found in findings if found.title.startswith(BY_SCOPE)]:
        return f"It succeeded. {scoped[0]}."
    despite = next((found.title for found in findings if found.title.startswith((DESPITE_ERROR, WENT_ON))), "")
    if despite.startswith(DESPITE_ERROR):
        return f"{despite}."
    if despite and all(found.severity == "info" for found in findings):
        return "It succeeded."
    if main == "placement.no-kernel" and not run.fallbacks:
        return f"It succeeded. {title}."
    if any(found.severity in ("error", "warning") for found in findings):
        return ""
    return _without_problems(run) if run.device_map else "It succeeded."


def _title(findings: tuple[Finding, ...], cause: str | None) -> str:
    return next((found.title for found in findings if found.id == cause), CAUSES[cause or "unknown"])


def _placement_unseen(run: Run) -> bool:
    return run.framework is not None and run.framework.name == "tensorflow" and "placement" not in run.settings


def _without_problems(run: Run) -> str:
    """With --placement only if nearly all requested devices are known, and with their share."""
    coverage = run.placement_coverage
    if _placement_unseen(run):
        return f"It succeeded; {_PLACEMENT_UNCHECKED}."
    if coverage is None or not coverage.nodes:
        return "It succeeded without problems."
    known = 1 - coverage.unclear / coverage.nodes
    share = f"the requested devices of {int(100 * known)} % of {coverage.nodes} graph nodes are known"
    return (
        f"It succeeded without problems: {share}."
        if known >= _MIN_KNOWN_NODES_SHARE
        else f"It succeeded; only {share}."
    )


def _is_of_memory(found: Finding) -> bool:
    return found.id.startswith("memory.") or found.title in UNEXPLAINED_TITLES


def _exited_well(run: Run) -> bool:
    """Whether the program ended by itself, with exit code 0."""
    return run.verdict in ("ok", "fallback") and run.outcome.exit_code == 0
