"""Memory that a framework was granted: limits that a GPU cannot hold, alone or beside what others hold, and several
processes of one program, of which a later one was granted what the first had left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.findings import Certainty, Finding, Severity
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.run_memory import DeviceMemory, Holding
from gpuwatch.core.model.snapshot import Device
from gpuwatch.explain.diagnosis.evidence import Evidence, device_behind
from gpuwatch.explain.diagnosis.memory.memory_holders import (
    GENERAL_ADVICE,
    free_memory_advice,
    held_at_once,
    holder_text,
    holders,
    holders_headline,
    others_during_run,
    others_memory,
    samples_of,
)
from gpuwatch.explain.diagnosis.memory.oom_facts import has_memory_limit, ooms_of
from gpuwatch.explain.diagnosis.memory.oom_verdict import (
    REFUSED_ACTION,
    REFUSED_TITLE,
    is_round_limit,
    is_small_limit,
)
from gpuwatch.explain.diagnosis.reference.advice_table import TENSORFLOW
from gpuwatch.explain.diagnosis.rule_registry import finding, rule, warning_finding
from gpuwatch.explain.diagnosis.rules.error_evidence import quoted
from gpuwatch.explain.logs.log_facts import LogFacts

_SHARE_ON_PURPOSE_ACTION = "To share it on purpose, set a memory_limit for each, with TF_FORCE_GPU_ALLOW_GROWTH=true."
_MIN_OTHERS_SHARE = 0.1
"""Share of a device that others must hold to be worth a warning."""
_MUCH_SHARE = 0.5
"""Share of a GPU that the first must hold, and of its grant below which the other's is small."""
_TOGETHER_SECONDS = 2.0
"""Seconds within which either of two processes may have allocated first."""


@rule("memory.other-process", "config.inconsistent", "unknown", needs="log")
def driver_refused_memory(evidence: Evidence, log: LogFacts) -> Iterator[Finding]:
    """The driver had less memory than TensorFlow requested, by the request, the device's size and what others held.

    A series that shrinks by a tenth each time is the allocator's back-off, which may still succeed; the same size
    refused again and again means that nothing is left. Limits above the device's size must be refused.
    """
    if not log.refusals.count or any(oom.requested_bytes for oom in ooms_of(evidence)):
        return
    refusals = log.refusals
    severity: Severity = "error" if refusals.constant_bytes is not None else "warning"
    refused_text = f"the driver refused 1 allocation of {size(refusals.first_bytes)}"
    if refusals.count > 1:
        span = f"from {size(refusals.first_bytes)} to {size(refusals.smallest_bytes)}"
        refused_text = f"the driver refused {refusals.count} allocations, {span}"
    lines = log.lines_of("memory.refused")
    grants = list(_granted_per_gpu(evidence))
    too_large = next((grant for grant in grants if grant.alone_bytes > grant.total), None)
    crowded = next((grant for grant in grants if grant.others and grant.alone_bytes + grant.others > grant.total), None)
    cause, uuid = "memory.other-process", None
    certainty: Certainty = "likely"
    title, action = "The driver has less free memory than TensorFlow requests", GENERAL_ADVICE
    reasons: list[str] = []
    if too_large is not None:
        cause, certainty, uuid = "config.inconsistent", "fact", too_large.device.uuid
        title, reasons = _limits_too_large(too_large), [too_large.arithmetic]
        action = (
            "Set limits below what is free on the GPU, with room for a CUDA context, or no limit: TensorFlow allocates"
            " nearly all memory by default."
        )
    elif crowded is not None and evidence.snapshot is not None:
        uuid = crowded.device.uuid
        snapshot = others_during_run(evidence.snapshot, samples_of(evidence.run, crowded.device))
        named, held = holders_headline(snapshot, crowded.device), holders(snapshot, crowded.device)
        title = f"{named or f'Others held {size(crowded.others)}'}: {size(crowded.granted)} were not free"
        reasons = [crowded.arithmetic, *(holder_text(amount, process) for amount, process in held[:3])]
        action = free_memory_advice(snapshot, crowded.device, crowded.granted)
    elif evidence.run is not None and grants and all(grant.others is not None for grant in grants):
        cause, certainty, title, action = "unknown", "fact", REFUSED_TITLE, REFUSED_ACTION
        reasons = [grant.arithmetic for grant in grants]
    yield finding(
        cause,
        severity,
        certainty,
        title=title,
        evidence=(refused_text, *reasons, *lines),
        action=action,
        device_uuid=uuid,
    )


@dataclass(frozen=True, slots=True)
class _GrantedOnGpu:
    """What the framework's devices on one GPU may take together, against what that GPU has, in bytes."""

    device: Device
    parts: int
    """Number of the framework's devices on it."""
    granted: int
    total: int
    overhead: int
    """What the driver and the CUDA context take."""
    others: int | None
    """What others hold; None if unknown."""

    @property
    def alone_bytes(self) -> int:
        """What it takes without others."""
        return self.granted + self.overhead

    @property
    def arithmetic(self) -> str:
        """``GPU 0, NVIDIA L4: 20 GiB of limits + 300 MiB held by others ≤ 22 GiB``."""
        beside = f" + {size(self.overhead)} for the driver and the CUDA context" if self.overhead else ""
        others = f" + {size(self.others)} held by others" if self.others is not None else ""
        sign = ">" if self.alone_bytes + (self.others or 0) > self.total else "≤"
        return (
            f"GPU {self.device.index}, {self.device.name}: {size(self.granted)} of limits{beside}{others}"
            f" {sign} {size(self.total)}"
        )


def _limits_too_large(grant: _GrantedOnGpu) -> str:
    if grant.parts == 1 and grant.granted > grant.total:
        return f"The limit of {size(grant.granted)} is larger than the GPU, which has {size(grant.total)} in all"
    limits = "The limits" if grant.parts > 1 else "The limit"
    beside = f" and {size(grant.overhead)} for the driver and the CUDA context" if grant.overhead else ""
    of = f" of {size(grant.granted)}" + (" together" if grant.parts > 1 else "")
    return f"{limits}{of}{beside} are more than GPU {grant.device.index} has, {size(grant.total)}"


def _granted_per_gpu(evidence: Evidence) -> Iterator[_GrantedOnGpu]:
    granted: dict[str, list[int]] = {}
    devices: dict[str, Device] = {}
    for mapping in evidence.device_map:
        mapped = device_behind(mapping, evidence.gpus)
        if mapped is not None and mapping.granted_bytes is not None:
            granted.setdefault(mapped.uuid, []).append(mapping.granted_bytes)
            devices[mapped.uuid] = mapped
    for uuid, amounts in granted.items():
        device = devices[uuid]
        held = others_memory(device, samples_of(evidence.run, device), evidence.run)
        if held.total:
            yield _GrantedOnGpu(device, len(amounts), sum(amounts), held.total, held.overhead, held.max_from_start)


@rule("memory.other-process", needs="run")
def less_granted_than_alone(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """TensorFlow's default limit is the free memory at its start: memory held by others then is missing."""
    snapshot = evidence.snapshot
    if snapshot is None or run.ooms or run.workers or run.verdict in ("skipped", "timeout", "error"):
        return
    if run.framework is not None and run.framework.name != TENSORFLOW:
        return  # JAX's limit is a share of the whole device
    if has_memory_limit(run) or evidence.log.refusals.count:
        return
    for grant in _granted_per_gpu(evidence):
        entry = samples_of(run, grant.device)
        others = others_memory(grant.device, entry, run).start
        if others is None or others < _MIN_OTHERS_SHARE * grant.total:
            continue
        if is_round_limit(grant.granted) and is_small_limit(grant.granted, grant.total - others):
            continue  # a limit of the program's own, which others did not touch
        at_start = others_during_run(snapshot, entry, at_start_only=True)
        held = holders(at_start, grant.device)
        headline = holders_headline(at_start, grant.device)
        headline = headline or f"Others held {size(others)} of GPU {grant.device.index}"
        yield warning_finding(
            "memory.other-process",
            title=f"{headline}: TensorFlow was granted {size(grant.granted)}",
            evidence=(
                f"GPU {grant.device.index} has {size(grant.total)}; others held {size(others)} of it when TensorFlow"
                f" started, which granted itself {size(grant.granted)} of the rest",
                *(holder_text(amount, process) for amount, process in held[:3]),
            ),
            action=f"{free_memory_advice(at_start, grant.device)} {_SHARE_ON_PURPOSE_ACTION}",
            device_uuid=grant.device.uuid,
        )


class _ProcessOnGpu(NamedTuple):
    """A process of the run on one GPU, with what it was granted and held there, in bytes."""

    pid: int
    granted: int
    took: int | None
    """What it held, if that is all that it got of the grant: it used the GPU, and is not known to have growth."""
    held: Holding
    command: str


@rule("memory.other-process", needs="program")
def granted_what_another_left(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """Not told of limits that the program set, nor of processes one after another, nor if memory ran out."""
    if run.ooms:
        return
    for entry in run.memory.devices:
        processes = sorted(_processes_on_gpu(run, entry), key=_first_seen_at)
        latest = _first_seen_at(processes[0]) + _TOGETHER_SECONDS if processes else 0.0
        first_together = [process for process in processes if _first_seen_at(process) <= latest]
        first = max(first_together, key=lambda process: process.held.peak_bytes or 0, default=None)
        if first is None or not entry.total_bytes or (first.held.peak_bytes or 0) < _MUCH_SHARE * entry.total_bytes:
            continue
        left = entry.total_bytes - (first.held.peak_bytes or 0)
        actual = (_with_actual_grant(each, left) if each in first_together else each for each in processes)
        small_grants = [
            process
            for process in actual
            if process.pid != first.pid
            and process.granted <= min(left, _MUCH_SHARE * first.granted)
            and not is_round_limit(process.granted)
            and held_at_once(process.held, first.held)
        ]
        if small_grants:
            yield warning_finding(
                "memory.other-process",
                title=f"{len(small_grants) + 1} processes of the program share GPU {entry.index}: process"
                f" {small_grants[0].pid} was granted {size(small_grants[0].granted)}, the memory that process"
                f" {first.pid} left",
                evidence=[
                    f"process {process.pid}: granted {size(process.granted)},"
                    f" from {process.held.first_seconds or 0.0:.1f} s to"
                    f" {process.held.last_seconds or 0.0:.1f} s{process.command}"
                    for process in (first, *small_grants)
                ],
                action="Give each process its own GPU (CUDA_VISIBLE_DEVICES), or share one on purpose: a"
                f" memory_limit for each, or TF_FORCE_GPU_ALLOW_GROWTH=true, first of all for process {first.pid}.",
                device_uuid=entry.uuid,
            )


def _first_seen_at(process: _ProcessOnGpu) -> float:
    return process.held.first_seconds or 0.0


def _with_actual_grant(process: _ProcessOnGpu, left: int) -> _ProcessOnGpu:
    """Two processes that start together are each granted everything; the first op then takes what the other has left.

    What took far less than that needs no more: it may have growth of its own.
    """
    return process._replace(granted=process.took) if process.took and process.took >= _MUCH_SHARE * left else process


def _processes_on_gpu(run: Run, entry: DeviceMemory) -> Iterator[_ProcessOnGpu]:
    """The processes of the run that NVML saw on this GPU, with what their frameworks were granted there."""
    for process in run.processes:
        granted = sum(mapping.granted_bytes or 0 for mapping in process.device_map if mapping.uuid == entry.uuid)
        held = next((holder for holder in entry.holders if holder.own and holder.pid == process.pid), None)
        if granted and held is not None:
            here = (mapping.framework_device for mapping in process.device_map if mapping.uuid == entry.uuid)
            used = any(map(process.allocators.get, here))
            grows = any("growth" in name.lower() for name in (*run.settings, *process.environment))
            took = min(granted, held.peak_bytes) if used and not grows and held.peak_bytes else None
            command = f": {quoted(process.command, 80)}" if process.command else ""
            yield _ProcessOnGpu(process.pid, granted, took, held, command)
