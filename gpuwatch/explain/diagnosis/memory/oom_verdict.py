"""The verdict on an out-of-memory failure: :func:`verdict_on` names its cause from its numbers and facts."""

from __future__ import annotations

import msgspec

from gpuwatch.core.model.run import Oom
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.memory.memory_growth import one_block_per_step
from gpuwatch.explain.diagnosis.memory.oom_arithmetic import OomVerdict, judge
from gpuwatch.explain.diagnosis.memory.oom_facts import growth_of, is_host_oom, oom_facts, with_limit

_CAUSES_OF_GROWTH = ("memory.model-too-large", "memory.limit-too-small")
"""What a program reaches that keeps tensors, whatever its model and its limit are."""


def verdict_on(evidence: Evidence, oom: Oom) -> OomVerdict:
    """An OOM's cause: that memory grew from step to step comes before what the last request met."""
    found = judge(oom, oom_facts(evidence, oom))
    run = evidence.run
    if run is None or oom.expected or is_host_oom(oom) or found.cause not in _CAUSES_OF_GROWTH:
        return found
    has_steps = run.throughput is not None or bool(run.step_times)
    grew = has_steps and (growth_of(run) is not None or one_block_per_step(oom, run.throughput))
    return OomVerdict("memory.growing", found.lines) if grew else found


def with_verdicts(evidence: Evidence, ooms: tuple[Oom, ...]) -> tuple[Oom, ...]:
    """The failures, each with its verdict."""
    known = [with_limit(evidence, oom) for oom in ooms]
    return tuple(msgspec.structs.replace(oom, verdict=verdict_on(evidence, oom).cause) for oom in known)
