"""Turns the runner's draft into a finished run: GPUs joined to the device map, findings, verdict and reason added."""

from __future__ import annotations

import re

from msgspec.structs import replace

from gpuwatch.core.model.causes import NO_GPU
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import DeviceMapping, Oom, PredictedMapping, Run
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.model.visible_devices import visible_devices
from gpuwatch.explain.diagnosis.evidence import Evidence, device_behind, mapped_to
from gpuwatch.explain.diagnosis.memory.oom_verdict import UNEXPLAINED_TITLES, with_verdicts
from gpuwatch.explain.diagnosis.rule_engine import by_severity, diagnose, primary_cause
from gpuwatch.explain.diagnosis.rules.child_processes import EXIT_0_TITLE
from gpuwatch.explain.diagnosis.rules.error_evidence import frame_of
from gpuwatch.explain.diagnosis.rules.idle_gpu_memory import CPU_SCOPE_TITLE
from gpuwatch.explain.diagnosis.rules.process_ends import ending_signal
from gpuwatch.explain.diagnosis.rules.program_error_messages import ENDINGS
from gpuwatch.explain.diagnosis.rules.simulation_limits import SIMULATION_LIMIT
from gpuwatch.explain.diagnosis.runs.final_verdict import (
    PLACEMENT_UNCHECKED,
    ended_by_own_exception,
    exited_with_code_0,
    placement_unchecked,
    reason_of,
    verdict_of,
)
from gpuwatch.explain.diagnosis.runs.op_fallbacks import fallbacks_in_log, find_fallbacks
from gpuwatch.explain.diagnosis.runs.tensorflow_device_prediction import predict, requested_devices_of
from gpuwatch.explain.logs.device_names import device_name
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.log_parser import parse
from gpuwatch.explain.logs.oom_messages import is_out_of_memory_error
from gpuwatch.explain.logs.tracebacks import file_name
from gpuwatch.sim.simulated_machine import context_bytes


def complete(run: Run, log: LogFacts, before: Snapshot | None) -> Run:
    """The finished run: joins the device map, and adds verdict and findings to the draft.

    ``run`` is the draft with the runner's observations (events, exit, ``verdict`` ok, error, oom, timeout or skipped);
    ``log`` the parsed log of the framework; ``before`` the machine before the start.
    """

    def evidence_of(run: Run) -> Evidence:
        return Evidence(snapshot=before, run=run, log=log, environment=run.environment)

    run = replace(
        run,
        device_map=_with_gpus(run.device_map or tuple(log.device_map), before, Evidence(run=run)),
        placements=run.placements or tuple(log.placements),
        ooms=run.ooms or tuple(log.ooms or parse("\n".join(error.message for error in run.errors)).ooms),
        missing_libraries=run.missing_libraries or tuple(log.missing_libraries),
        processes=tuple(
            replace(
                process, device_map=_with_gpus(process.device_map, before, Evidence(environment=process.environment))
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
        findings = relevant_findings(run, log, findings)
    primary = primary_cause(findings)
    verdict = verdict_of(run, evidence, primary)
    if verdict == "skipped":  # healthy requires a run
        findings = tuple(found for found in findings if found.id != "healthy")
        primary = primary_cause(findings)
        primary = None if primary == "healthy" else primary
    elif verdict == "fallback" and primary == "healthy":
        primary = next((entry.reason for entry in run.fallbacks if entry.reason != SIMULATION_LIMIT), primary)
    reason = run.verdict_reason
    if not reason or verdict != run.verdict or verdict == "oom" or (run.is_program and verdict == "ok"):
        # The runner's "It ran out of memory." says less than the numbers, and its signal that was handled not enough.
        reason = reason_of(run, evidence, verdict, findings, primary)
    if verdict == "interrupted" and "SIGINT" in reason:  # of another signal it is the handler's line
        reason = reason.removesuffix(".") + _place_of_interruption(log) + "."
    return replace(run, verdict=verdict, verdict_reason=reason, findings=findings, primary=primary)


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


def _with_gpus(
    mappings: tuple[DeviceMapping, ...], before: Snapshot | None, process_evidence: Evidence
) -> tuple[DeviceMapping, ...]:
    """The map with physical GPUs: by PCI address, or by CUDA's numbering if the framework prints none.

    ``process_evidence`` is the environment of the mapped process.
    """
    if before is None:
        return mappings
    order = process_evidence.variables.get("CUDA_DEVICE_ORDER")
    seen = visible_devices(process_evidence.visible_devices, order, before.devices)
    ordinals = {entry.ordinal: entry.uuid for entry in seen.map}
    joined = []
    for mapping in mappings:
        device = device_behind(mapping, before.devices)
        if device is None and mapping.pci_bus_id is None and mapping.cuda_ordinal is not None:
            device = before.device(ordinals.get(mapping.cuda_ordinal))
        if device is not None:
            mapping = mapped_to(mapping, device)
        joined.append(mapping)
    return tuple(joined)


def _place_of_interruption(log: LogFacts) -> str:
    """``, in train.py, line 7 (forward)``: where a program was when it was interrupted; empty if that is not known."""
    last = next((error for error in log.errors[-1:] if error.type == "KeyboardInterrupt"), None)
    frame = frame_of(log, last) if last is not None else None
    if frame is None or frame.is_library:
        return ""
    function = f" ({frame.function})" if frame.function and not frame.function.startswith("<") else ""
    return f", in {file_name(frame.file)}, line {frame.line}{function}"


_GPU_WORDS = re.compile(
    r"cud|(?<!not )(?<!not the )gpu(?!watch| is not)|nvidia|nvml|nccl|cublas|(?<!left on )(?<!\")device|driver",
    re.IGNORECASE,
)
"""Not "the program's own error, not the GPU's", nor of a disk: "No space left on device"."""


def relevant_findings(run: Run, log: LogFacts, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings that concern this program.

    A bare exit code is in the verdict and is not a cause. What ended a program comes before why it had no GPU, unless
    that may have ended it. A program without a framework did not request a GPU, so a machine without one is not its
    problem.
    """
    uses_framework = run.framework is not None or bool(log.frameworks) or bool(run.device_map)
    raised = any(error.type not in ("KeyboardInterrupt", "SystemExit") for error in (*run.errors, *log.errors))
    raised = raised or ending_signal(run) is not None or any(topic in ENDINGS for topic in log.topics)
    stalled = any(found.id == "program.stalled" for found in findings)
    process_failed = any(process.exit_code for process in run.processes) and not stalled
    raised = raised or bool(run.killed_children) or process_failed
    caught = exited_with_code_0(run) or ended_by_own_exception(run, run.outcome)
    ends = [found for found in findings if found.id in ("unknown", "program.error") and found.severity == "error"]
    # An end that has nothing to do with a GPU, by its title and its error.
    unrelated_to_gpus = any(not _GPU_WORDS.search(" ".join((found.title, *found.evidence[:1]))) for found in ends)
    failed_elsewhere = run.verdict == "error" and unrelated_to_gpus
    unexplained_moves = [entry.detail for entry in run.fallbacks if entry.reason == "unknown"]
    healthy = (
        uses_framework
        and run.verdict in ("ok", "fallback")
        and all(entry.reason == SIMULATION_LIMIT for entry in run.fallbacks)
    )
    healthy = healthy and not any(found.title.startswith((CPU_SCOPE_TITLE, EXIT_0_TITLE)) for found in findings)
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
