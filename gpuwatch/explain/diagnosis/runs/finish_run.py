"""Turns the runner's draft into a finished run: device map joined, verdict and findings added."""

from __future__ import annotations

import re

import msgspec

from gpuwatch.core.formatting.units import memory
from gpuwatch.core.grouping import grouped
from gpuwatch.core.model.ended_by_own_exception import ended_apart
from gpuwatch.core.model.findings import CAUSES, Finding
from gpuwatch.core.model.run import DeviceMapping, Oom, PredictedMapping, Run, Verdict
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.model.visible_devices import visible_devices
from gpuwatch.explain.diagnosis.evidence import Evidence, device_behind
from gpuwatch.explain.diagnosis.memory.oom_facts import with_verdicts
from gpuwatch.explain.diagnosis.rule_engine import diagnose, primary_cause
from gpuwatch.explain.diagnosis.rules.op_placement import LIMIT
from gpuwatch.explain.diagnosis.runs.op_fallbacks import fallbacks, hidden_on_purpose, moved_by_placer
from gpuwatch.explain.diagnosis.runs.predict_device_map import predict, requested_devices_of
from gpuwatch.explain.diagnosis.runs.user_program_verdict import is_watched, reason_of, relevant_findings, verdict_of
from gpuwatch.explain.logs.line_text import device_name
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.log_parser import parse
from gpuwatch.explain.logs.message_topics import topics_of
from gpuwatch.explain.logs.oom_wording_of_others import exhausted
from gpuwatch.explain.logs.python_exceptions import telling
from gpuwatch.sim.simulated_machine import context_bytes

replace = msgspec.structs.replace

_OF_A_PIPELINE = re.compile(r"Dataset(?:V\d+)?$|Iterator(?:V\d+)?$|^DummySeedGenerator$")
"""Ops that make a data set: TensorFlow keeps them on the CPU by design, whatever scope they are made in."""


def complete(run: Run, log: LogFacts, before: Snapshot | None) -> Run:
    """The finished run: joins the device map, and adds verdict and findings to the draft.

    ``run`` is the draft with the runner's observations (events, exit, ``verdict`` ok, error, oom, timeout or skipped);
    ``log`` the parsed log of the framework; ``before`` the machine before the start.
    """
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
    evidence = Evidence(snapshot=before, run=run, log=log, environment=run.environment)
    run = replace(run, ooms=with_verdicts(evidence, tuple(_with_limit(run, oom) for oom in _with_expected_ooms(run))))
    evidence = Evidence(snapshot=before, run=run, log=log, environment=run.environment)
    first = diagnose(evidence)
    run = replace(run, fallbacks=fallbacks(run, evidence, first))
    if is_watched(run) and not run.fallbacks:
        run = replace(run, fallbacks=moved_by_placer(log, evidence, first))
    findings = diagnose(Evidence(snapshot=before, run=run, log=log, environment=run.environment))
    verdict = _verdict(run)
    if is_watched(run):
        findings = relevant_findings(run, log, findings)
        verdict = verdict_of(run, verdict, evidence, primary_cause(findings))
    if verdict == "skipped":
        # Healthy requires a run.
        findings = tuple(found for found in findings if found.id != "healthy")
    main = primary_cause(findings)
    if verdict == "skipped" and main == "healthy":
        main = None
    if verdict == "fallback" and main == "healthy":
        main = next((entry.reason for entry in run.fallbacks if entry.reason != LIMIT), main)
    reason = run.verdict_reason
    if not reason or verdict != run.verdict or verdict == "oom":
        # The runner's "it ran out of memory" says less than the numbers.
        own = reason_of(run, log, verdict, findings, main) if is_watched(run) else ""
        reason = own or _reason(run, verdict, findings, main, hidden_on_purpose(evidence, findings))
    return replace(
        run,
        verdict=verdict,
        verdict_reason=reason,
        findings=findings,
        primary=main,
    )


def _predicted_map(run: Run, before: Snapshot | None) -> tuple[PredictedMapping, ...] | None:
    """The prediction; None for several processes, a probe that never reached its devices, or a user's program, whose
    settings are its own."""
    if (
        before is None
        or is_watched(run)
        or run.workers
        or run.verdict in ("skipped", "timeout")
        or run.framework is None
    ):
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
    refused = [error for error in run.errors if exhausted(error)]
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
    order = saw.variable("CUDA_DEVICE_ORDER")
    seen = visible_devices(saw.visible_devices, order, before.devices)
    ordinals = {entry.ordinal: entry.uuid for entry in seen.map}
    joined = []
    for mapping in mappings:
        device = device_behind(mapping, before)
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


def _verdict(run: Run) -> Verdict:
    """The runner's verdict, refined: a crash after an OOM is an OOM, work on the CPU a fallback."""
    if run.verdict in ("skipped", "timeout", "oom", "interrupted"):
        return run.verdict
    unexpected_oom = any(not oom.expected for oom in run.ooms)
    if unexpected_oom and not ended_apart(run, run.outcome):
        return "oom"
    if run.verdict == "error":
        return "error"
    fell = (entry for entry in run.fallbacks if entry.reason != LIMIT and _OF_A_PIPELINE.search(entry.op) is None)
    return "fallback" if next(fell, None) is not None else "ok"


def _rounds(run: Run) -> str:
    """How the processes of each round ended, if there were several rounds; else empty."""
    rounds = grouped(run.workers, lambda worker: worker.setting)
    failed = {name: [w for w in workers if w.verdict != "ok"] for name, workers in rounds.items()}
    if len(rounds) < 2 or not any(failed.values()):
        return ""
    lived = [name for name, workers in failed.items() if not workers]
    parts = []
    for name, workers in failed.items():
        if not workers:
            continue
        who = " and the ".join(worker.name for worker in workers)
        end = "ran out of memory" if all(worker.verdict == "oom" for worker in workers) else "failed"
        others = [worker for worker in rounds[name] if worker.verdict == "ok"]
        held = max((worker.nvml_bytes or worker.granted_bytes or 0 for worker in others), default=0)
        beside = f" alongside the {others[0].name}, which held {memory(held)}" if others and held else ""
        parts.append(f"with {name} the {who} process {end}{beside}")
    if lived:
        parts.append(f"with {', '.join(lived)} both succeeded")
    expected = bool(run.ooms) and all(oom.expected for oom in run.ooms)
    text = "; ".join(parts) + (" (expected)" if expected else "")
    return f"{text[:1].upper()}{text[1:]}."


def _moved_text(run: Run) -> str:
    """``AddV2 and 3 more ran on GPU:0 instead of GPU:7: …``, two requests at most."""
    fell = (entry for entry in run.fallbacks if entry.reason != LIMIT)
    groups = grouped(fell, lambda entry: (entry.requested, entry.actual, entry.reason))
    parts = []
    for (requested, actual, reason), group in list(groups.items())[:2]:
        kinds = list(dict.fromkeys(fallback.kind if is_watched(run) else fallback.op for fallback in group))
        more = f" and {len(kinds) - 1} more" if len(kinds) > 1 else ""
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
        # The finding's title is more specific than its cause.
        title = next((found.title for found in findings if found.id == cause), CAUSES[cause or "unknown"])
        return f"{title}{expected}."
    if verdict == "fallback":
        return _moved_text(run)
    if verdict == "timeout":
        return "The probe did not finish before its deadline."
    if verdict == "error":
        unexpected = [error for error in run.errors if not error.expected]
        if unexpected:
            last = unexpected[-1]
            return f"{last.type}: {telling(last.message)[:200] or 'no message'}"
        if run.outcome.signal is not None:
            return f"The probe was killed by signal {run.outcome.signal}."
        return f"The probe ended with exit code {run.outcome.exit_code}."
    if verdict == "skipped":
        return "This probe does not apply to this machine."
    if on_purpose:
        return "The work ran on the CPU, as requested: every GPU was hidden."
    expected_errors = [error for error in run.errors if error.expected]
    if expected_errors:
        error = expected_errors[0]
        meant = next((topic for topic in topics_of(error.message) if topic in CAUSES), main or "")
        return f"The expected error, {error.type}: {CAUSES.get(meant, 'the subject of this probe')}."
    warning = next((found for found in findings if found.severity in ("error", "warning")), None)
    if warning is not None:
        return f"Ran, with {'an error' if warning.severity == 'error' else 'a warning'}: {warning.title}."
    return "Ran on the requested device."
