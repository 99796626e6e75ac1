"""GPUs and memory that a framework was granted: too much, other than predicted, or what others had left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gpuwatch.core.formatting.units import memory, size
from gpuwatch.core.model.findings import Certainty, Finding, Severity
from gpuwatch.core.model.run import DeviceMapping, PredictedMapping, Run
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
from gpuwatch.explain.diagnosis.memory.oom_verdict import REFUSED_ACTION, REFUSED_TITLE, is_round_limit, is_small_limit
from gpuwatch.explain.diagnosis.reference.advice_table import TENSORFLOW
from gpuwatch.explain.diagnosis.rule_registry import finding, rule, warning_finding
from gpuwatch.explain.diagnosis.rules.error_evidence import quoted
from gpuwatch.explain.logs.device_names import device_name
from gpuwatch.explain.logs.log_facts import LogFacts

_MIB = 1 << 20
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
    severity: Severity = "error" if refusals.repeated_bytes is not None else "warning"
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
    lines = (refused_text, *reasons, *lines)
    yield finding(cause, severity, certainty, title=title, evidence=lines, action=action, device_uuid=uuid)


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


@rule("memory.other-process", "unknown", needs="run")
def differs_from_prediction(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """Another GPU than expected, or another amount of memory."""
    if run.predicted is None or run.workers or run.verdict in ("skipped", "timeout"):
        return
    if not run.device_map:
        log = evidence.log
        of_driver = log.cuinit_error or log.libraries_skipped or log.cudart_missing or log.ignored_gpus
        complained = (
            of_driver or log.hiding_visible_devices or run.errors or run.ooms or run.verdict in ("error", "oom")
        )
        if run.predicted and run.devices.logical and not complained:  # nothing explains it, and somebody looked
            yield warning_finding(
                "unknown",
                title="TensorFlow mapped no GPU, although one was expected",
                evidence=[f"expected {_expected_text(entry)}" for entry in run.predicted],
                action="Read the log from its first line: it should say why the GPUs were ignored.",
            )
        return
    observed = {device_name(mapping.framework_device): mapping for mapping in run.device_map}
    expected = {device_name(entry.framework_device): entry for entry in run.predicted}
    if evidence.log.ignored_gpus or "build.gpu-jit" in evidence.log.topics:
        return  # the log says itself which GPUs it takes, and why
    names = sorted({*expected, *observed})
    differences = [_mapping_difference(name, expected.get(name), observed.get(name)) for name in names]
    if any(differences):
        yield warning_finding(
            "unknown",
            title="The device map differs from the expected one",
            evidence=differences,
            action="Compare the run's settings and environment with the map; the map shows what really happened.",
        )
        return
    for name, entry in expected.items():
        yield from _amount_findings(run, evidence.gpus, entry, observed[name])


def _mapping_difference(name: str, expected: PredictedMapping | None, observed: DeviceMapping | None) -> str:
    if observed is None:
        return f"{name} was expected on physical GPU {expected.physical_index}, but does not exist" if expected else ""
    if expected is None:
        return f"{name} is physical GPU {observed.physical_index}, which was not expected"
    if observed.uuid in (None, expected.uuid):
        return ""
    return (
        f"{name} is physical GPU {observed.physical_index} ({observed.uuid}),"
        f" expected {expected.physical_index} ({expected.uuid})"
    )


def _amount_findings(
    run: Run, gpus: Iterable[Device], expected: PredictedMapping, observed: DeviceMapping
) -> Iterator[Finding]:
    if expected.granted_bytes is None or observed.granted_bytes is None:
        return
    difference = expected.granted_bytes - observed.granted_bytes
    if abs(difference) <= expected.tolerance_bytes:
        return
    name = device_name(expected.framework_device)
    lines = [f"expected {_expected_text(expected)}", f"granted {_mib_text(observed.granted_bytes)}"]
    entry = next((entry for entry in run.memory.devices if entry.uuid == expected.uuid), None)
    peak, before = (entry.others_peak_bytes, entry.others_before_bytes) if entry is not None else (None, None)
    allocated_meanwhile = peak - before if peak is not None and before is not None else None
    held = others_memory(device_behind(observed, gpus), entry, run)
    freed_meanwhile = held.before - held.start if held.before is not None and held.start is not None else 0
    cause = "memory.other-process"
    if difference > 0 and allocated_meanwhile is not None and allocated_meanwhile >= difference / 2:
        period = "between the prediction and the end of the run"
        lines.append(f"NVML: other processes allocated {size(allocated_meanwhile)} {period}")
        title = f"{name} was granted {size(difference)} less than was free: another process allocated memory meanwhile"
        action = "Compare runs only while no other program starts on this GPU; run this one again."
    elif difference < 0 and freed_meanwhile >= -difference / 2:
        lines.append(f"NVML: others held {size(held.before)} at the prediction, {size(held.start)} at the start")
        lines += (
            f"process {holding.pid} held {memory(holding.before_bytes)} and exited"
            for holding in (entry.holders if entry is not None else ())
            if not holding.own and holding.last_seconds is None and holding.before_bytes
        )
        title = f"{name} was granted {size(-difference)} more than was free at first: another process exited meanwhile"
        action = "Nothing to do: the measurement was made without that process."
    else:
        cause = "unknown"
        title = f"{name} was granted {size(abs(difference))} {'less' if difference > 0 else 'more'} than expected"
        action = "Check whether another program used this GPU at the start, or a variable changes the reserve."
    yield finding(
        cause,
        "info" if cause != "unknown" and difference < 0 else "warning",
        "fact" if cause == "unknown" else "likely",
        title=title,
        evidence=lines,
        action=action,
        device_uuid=expected.uuid,
    )


def _expected_text(entry: PredictedMapping) -> str:
    within = f" ± {entry.tolerance_bytes // _MIB}" if entry.tolerance_bytes else ""
    amount = f"{_mib_text(entry.granted_bytes)}{within}" if entry.granted_bytes is not None else "an unknown amount"
    return f"{device_name(entry.framework_device)} on GPU {entry.physical_index}: {amount} ({entry.how})"


def _mib_text(amount: int) -> str:
    return f"{amount // _MIB} MiB"
