"""Conditions judged from a single snapshot: for ``gpuwatch snapshot``, a run and the doctor."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.model.findings import Finding
from gpuwatch.explain.diagnosis.conditions import (  # noqa: F401 - they declare such conditions
    error_counters,
    gpu_faults,
    health_flags,
    idle_memory,
    throttling,
)
from gpuwatch.explain.diagnosis.conditions.condition_registry import conditions
from gpuwatch.explain.diagnosis.conditions.hysteresis import Occurrence
from gpuwatch.explain.diagnosis.conditions.sample_context import KeptBetweenSamples, SampleContext
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_registry import rule

_CONDITIONS = tuple(condition for condition in conditions() if condition.one_sample)


@rule(*dict.fromkeys(cause for condition in _CONDITIONS for cause in condition.causes), single_snapshot=True)
def momentary_conditions(evidence: Evidence) -> Iterator[Finding]:
    """What holds in this sample, regardless of how long; of a run only what concerns its GPUs."""
    snapshot = evidence.snapshot
    if snapshot is None:
        return
    at = snapshot.taken_at.timestamp()
    context = SampleContext(snapshot, at, 0.0, KeptBetweenSamples())
    context.remember()
    mappings = evidence.run.device_map if evidence.run is not None else ()
    used = {mapping.uuid for mapping in mappings if mapping.uuid}
    for condition in _CONDITIONS:
        for sign in condition.signs(context):
            if not sign.holds or (sign.process is not None and evidence.run is not None):
                continue
            if used and sign.device is not None and sign.device.uuid not in used and not condition.dead_devices:
                continue  # of the others only what may be why it did not get them
            occurrence = Occurrence.first_seen(sign, at, appears=0.0, leaves=0.0, first=True)
            if occurrence.known and occurrence.known < condition.appears:
                continue  # since when is known, and that is too short
            occurrence.add(sign, at, 0.0)
            found = condition.finding(occurrence, context)
            if found is not None and condition.listed(occurrence, context):
                yield found
