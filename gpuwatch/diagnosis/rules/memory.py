"""Out of memory: whose fault, by the numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from gpuwatch.diagnosis.arithmetic import Judgement, Surroundings, judge
from gpuwatch.diagnosis.cards import memory_in_log
from gpuwatch.diagnosis.evidence import Evidence, device_behind
from gpuwatch.diagnosis.growth import growth, kept
from gpuwatch.diagnosis.holders import ANYWHERE, described, headline, holders, make_room
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.formatting.secrets import mask_text
from gpuwatch.formatting.text import printable, shorten
from gpuwatch.formatting.units import size
from gpuwatch.logs.clean import device as device_name
from gpuwatch.model.findings import Finding, Severity
from gpuwatch.model.run import Oom
from gpuwatch.model.snapshot import Device

_LIMITING = re.compile(r"limit|fraction|virtual|logical.device", re.IGNORECASE)
_TRIFLE = 1 << 30
_TRIFLING_SHARE = 0.05
"""Memory in use that no failure is blamed on: below this share of the device, and below a GiB."""

ACTIONS = {
    "memory.model-too-large": "Make the batch or the model smaller, or use mixed precision.",
    "memory.request-too-large": "Split this tensor: a smaller batch, or the dataset kept on the CPU.",
    "memory.fragmented": "Set TF_GPU_ALLOCATOR=cuda_malloc_async, and keep the shapes of batches constant.",
    "memory.other-process": ANYWHERE,
    "memory.context-failed": "Free the device: not even a CUDA context (some hundred MB) fits beside what is on it.",
    "memory.limit-too-small": "Raise the memory limit or fraction: the device has room for more.",
    "memory.masked": "Leave room for cuDNN and cuBLAS: set memory growth or a smaller limit, or free the device.",
}

_GROWS = "GPU memory in use rose step by step until none was left: the program probably keeps tensors"
_STOP_KEEPING = (
    "Stop keeping tensors from step to step: keep numbers (float(x), x.numpy()) and empty lists of results."
    " If nothing is kept on purpose, make the batch or the model smaller."
)
_IF_GROWING = (
    "If memory grows with every step, stop keeping tensors."
    " If it does not, make the batch or the model smaller, or use mixed precision."
)
_COPY = "Dst tensor is not initialized"
"""TensorFlow's words for a copy from the host to the GPU that found no room there."""
_COPIED_OP = re.compile(r"in order to run (\w{1,80})")
_KEEP_ON_CPU = (
    "Keep the data on the CPU and hand over batches: make the dataset within tf.device('/CPU:0'), or read it by a"
    " generator (tf.data.Dataset.from_generator)."
)
_UNUSED = 1 << 20
"""A device with less than a MiB in use was initialised, no more."""


def surroundings(evidence: Evidence, oom: Oom) -> Surroundings:
    """What the snapshot, the settings and the log add to an OOM's own numbers."""
    if on_host(oom):
        return Surroundings()
    device = _device(evidence, oom)
    total = device.number("memory.total_bytes") if device is not None else None
    others = device.number("memory.used_bytes") if device is not None else None
    run = evidence.run
    if run is not None:
        total = total if total is not None else run.memory.device_total_bytes
        others = others if others is not None else run.memory.nvml_before_bytes
    told = True
    if total is None and evidence.log is not None:
        total, told = memory_in_log(evidence.log, oom.device)
    return Surroundings(
        total_bytes=int(total) if total is not None else None,
        others_bytes=int(others) if others is not None else None,
        held_by_others=_held_by_others(evidence, device, total, others),
        limits_bytes=_limits(evidence, oom),
        overhead_bytes=(
            (run.memory.context_bytes or 0) + (run.memory.driver_reserved_bytes or 0) if run is not None else 0
        ),
        limited=run is not None and any(_LIMITING.search(name) for name in run.settings),
        refusals=evidence.log.refusals.count if evidence.log is not None else 0,
        from_name=not told,
    )


def _device(evidence: Evidence, oom: Oom) -> Device | None:
    """The GPU that was full; without a map, the only one that there is."""
    device = evidence.device_of(oom.device)
    if device is None and evidence.snapshot is not None and oom.device in ("GPU:0", None):
        devices = evidence.snapshot.devices
        return devices[0] if len(devices) == 1 else None
    return device


def _held_by_others(
    evidence: Evidence, device: Device | None, total: float | None, before: float | None
) -> bool | None:
    """Whether somebody else held more than a trifle on the device; None where nothing of it is known."""
    known = [before]
    if evidence.run is not None:
        for entry in evidence.run.memory.devices:
            if device is None or entry.uuid == device.uuid:
                known += [entry.others_before_bytes, entry.others_peak_bytes]
        if _beside(evidence):
            return True
    if evidence.snapshot is not None and device is not None:
        known += [p.number("gpu_memory_bytes") for p in evidence.snapshot.processes if p.device_uuid == device.uuid]
    amounts = [amount for amount in known if amount is not None]
    if not amounts:
        return None
    return max(amounts) > (min(_TRIFLE, _TRIFLING_SHARE * total) if total else _TRIFLE)


def _limits(evidence: Evidence, oom: Oom) -> int | None:
    """What the framework's devices on the GPU of this failure may take together."""
    mappings = evidence.device_map
    wanted = device_name(oom.device) if oom.device else None
    own = next((entry for entry in mappings if device_name(entry.framework_device) == wanted), None)
    if own is None or (own.uuid is None and own.pci_bus_id is None):
        return None
    same = [entry for entry in mappings if (entry.uuid, entry.pci_bus_id) == (own.uuid, own.pci_bus_id)]
    granted = [entry.granted_bytes for entry in same if entry.granted_bytes is not None]
    return sum(granted) if len(granted) > 1 else None


def judged(evidence: Evidence, ooms: tuple[Oom, ...]) -> tuple[Oom, ...]:
    """The failures, each with its verdict."""
    known = (_limited(evidence, oom) for oom in ooms)
    return tuple(msgspec.structs.replace(oom, verdict=judge(oom, surroundings(evidence, oom)).cause) for oom in known)


def _limited(evidence: Evidence, oom: Oom) -> Oom:
    """The failure with its allocator's limit, which the line about the device's creation tells too.

    Not where several processes or sessions had a device of this name with different limits.
    """
    if oom.limit_bytes is not None or oom.requested_bytes is None or not (oom.allocator or "").endswith("_bfc"):
        return oom
    wanted = device_name(oom.device) if oom.device else None
    granted = {entry.granted_bytes for entry in evidence.device_map if device_name(entry.framework_device) == wanted}
    return msgspec.structs.replace(oom, limit_bytes=granted.pop()) if len(granted) == 1 else oom


def on_host(oom: Oom) -> bool:
    """Whether the memory that ran out was the host's."""
    return (oom.allocator or "") in ("cpu", "mklcpu")


def ooms_of(evidence: Evidence) -> tuple[Oom, ...]:
    """The run's failures, else the log's."""
    if evidence.run is not None and evidence.run.ooms:
        found = evidence.run.ooms
    else:
        found = tuple(evidence.log.ooms) if evidence.log is not None else ()
    return tuple(_limited(evidence, oom) for oom in found)


@rule(
    "memory.model-too-large",
    "memory.request-too-large",
    "memory.fragmented",
    "memory.other-process",
    "memory.context-failed",
    "memory.limit-too-small",
)
def out_of_memory(evidence: Evidence) -> Iterator[Finding]:
    """One finding per cause; the arithmetic of every failure is in its evidence."""
    by_cause: dict[str, list[tuple[Oom, Judgement]]] = {}
    for oom in ooms_of(evidence):
        judgement = judge(oom, surroundings(evidence, oom))
        by_cause.setdefault(judgement.cause, []).append((oom, judgement))
    for cause, failures in by_cause.items():
        expected = all(oom.expected for oom, _ in failures)
        severity: Severity = "info" if expected else "error"
        certain = all(judgement.certain for _, judgement in failures)
        lines = [line for _, judgement in failures[:5] for line in judgement.lines]
        if cause in ("memory.other-process", "memory.context-failed"):
            lines += _holders(evidence, failures[0][0])
        device = _device(evidence, failures[0][0])
        title = next((judgement.title for _, judgement in failures if judgement.title), "")
        action = next((judgement.action for _, judgement in failures if judgement.action), "")
        if cause in ("memory.other-process", "memory.context-failed"):
            named, remedy = _named(evidence, device, failures[0][0])
            title, action = title or named * (cause == "memory.other-process"), action or remedy
        action = action or ACTIONS[cause]
        if not expected:
            grown = _grown(evidence, failures) if cause == "memory.model-too-large" else []
            alike = next(filter(None, (kept(oom) for oom, _ in failures)), None)
            if grown:
                certain, title, action = False, _GROWS, _STOP_KEEPING
            elif cause == "memory.model-too-large" and alike is not None:
                action = _IF_GROWING
                if alike.many:
                    tensors = f"{alike.count} equal tensors of {size(alike.each_bytes)} are kept alive"
                    certain, title, action = False, f"{tensors}, perhaps in a list that grows", _STOP_KEEPING
            copied = _copied(evidence) if cause in ("memory.model-too-large", "memory.request-too-large") else ""
            if copied and not grown:
                title, action = copied, _KEEP_ON_CPU
            lines = [*grown, *_own_line(evidence), *lines, *_alike(failures), *_unused(evidence, failures)]
        if evidence.log is not None:
            lines += _said(evidence.log.lines_of("memory.oom"), numbers=failures[0][0].limit_bytes is not None)
        if any(on_host(oom) for oom, _ in failures):
            title = "Out of host memory (a CPU allocator), not of GPU memory"
            action = "Make the batch or the data kept in host memory smaller, or give the work more RAM."
        yield finding(
            cause,
            severity,
            "fact" if certain else "likely",
            title=title,
            evidence=lines,
            action=action,
            device_uuid=device.uuid if device is not None else None,
        )


def _copied(evidence: Evidence) -> str:
    """What was copied from the host when memory ended, where TensorFlow tells that it was that; else empty."""
    told = [error.message for error in evidence.run.errors] if evidence.run is not None else []
    told += evidence.log.lines_of("memory.oom") if evidence.log is not None else ()
    line = next((line for line in told if _COPY in line), None)
    if line is None:
        return ""
    op = match[1] if (match := _COPIED_OP.search(line)) else ""
    if op in ("", "_EagerConst"):
        return "Data copied from the host as one tensor found no room on the GPU"
    return f"An input of {op}, copied from the host, found no room on the GPU"


def _grown(evidence: Evidence, failures: list[tuple[Oom, Judgement]]) -> list[str]:
    """The rise of memory in use over the run, where it is that which filled the device."""
    run = evidence.run
    found = growth(run.memory.timeline) if run is not None else None
    if found is None:
        return []
    where = failures[0][0].device or "the GPU"
    return [
        f"the least in use on {where} rose from {size(found.first_bytes)} to {size(found.last_bytes)}"
        f" in {found.rises} rises over {found.seconds:.0f} s, and never fell again"
    ]


def _own_line(evidence: Evidence) -> list[str]:
    """The user's own line that asked for the memory; a probe's is nobody's."""
    frame = evidence.log.frame if evidence.log is not None else None
    if frame is None or (evidence.run is not None and evidence.run.group != "run"):
        return []
    code = f": {shorten(mask_text(printable(frame.code)), 120)}" if frame.code else ""
    return [f"asked for at {printable(frame.file)}, line {frame.line}{code}"]


def _alike(failures: list[tuple[Oom, Judgement]]) -> list[str]:
    """Tensors of one size that fill the device: what a loop that keeps its results leaves."""
    for oom, _ in failures:
        if (found := kept(oom)) is not None:
            total, used = found.count * found.each_bytes, oom.in_use_bytes or 0
            same = "the same size" if found.asked else "one size"
            of = f" of {size(used)}" if not found.asked else " in all"
            return [f"{found.count} blocks of {same} ({size(found.each_bytes)}) were in use already, {size(total)}{of}"]
    return []


def _unused(evidence: Evidence, failures: list[tuple[Oom, Judgement]]) -> list[str]:
    """Other GPUs of the program that it never used."""
    run = evidence.run
    if run is None or run.workers:
        return []
    full = {device_name(oom.device) for oom, _ in failures if oom.device}
    peaks = {device_name(name): peak for name, peak in run.memory.allocators.items()}
    idle = [
        f"{name} ({size(entry.granted_bytes)} granted)"
        for entry in run.device_map
        if (name := device_name(entry.framework_device)) not in full
        and entry.granted_bytes
        and peaks.get(name) is not None
        and peaks[name] < _UNUSED
    ]
    return [f"not used by the program: {', '.join(idle)}"] if full and idle else []


def _said(lines: tuple[str, ...], *, numbers: bool) -> list[str]:
    """What the framework said; where its numbers are told already, the line that has the tensor's shape."""
    if not numbers:
        return list(lines[:2])
    return [next((line for line in lines if "shape" in line), lines[0])] if lines else []


def _holders(evidence: Evidence, oom: Oom) -> list[str]:
    """Who held memory on the device, largest first: others of the same run, and those before the start."""
    lines = _beside(evidence)
    if evidence.snapshot is None:
        return lines + _in_table(evidence)
    held = holders(evidence.snapshot, _device(evidence, oom))
    return lines + [described(amount, process) for amount, process in held[:3]]


def _named(evidence: Evidence, device: Device | None, oom: Oom) -> tuple[str, str]:
    """Who it was and what helps, where the machine at the start was seen; a run's own processes are told apart."""
    snapshot = evidence.snapshot
    if snapshot is None or device is None or _beside(evidence):
        return "", ""
    need = (oom.requested_bytes or 0) + (oom.in_use_bytes or 0)
    action = make_room(snapshot, device, need)
    return headline(snapshot, device), action


def _in_table(evidence: Evidence) -> list[str]:
    """Who held memory by the nvidia-smi table that stands in the log, largest first."""
    rows = evidence.log.smi_processes if evidence.log is not None else []
    held = sorted(((row.held_bytes, row) for row in rows if row.held_bytes), key=lambda item: (-item[0], item[1].pid))
    return [
        f"nvidia-smi: process {row.pid} held {size(amount)} of GPU {row.gpu}: {shorten(printable(row.name), 60)}"
        for amount, row in held[:3]
    ]


def _beside(evidence: Evidence) -> list[str]:
    """Processes of this very run that lived on while another of their round ran out of memory."""
    workers = evidence.run.workers if evidence.run is not None else ()
    failed = {worker.setting for worker in workers if worker.verdict == "oom"}
    lines = []
    for worker in workers:
        held = worker.nvml_bytes if worker.nvml_bytes is not None else worker.granted_bytes
        if worker.verdict == "ok" and held and (not failed or worker.setting in failed):
            source = "NVML" if worker.nvml_bytes is not None else "its allocator's limit"
            pid = f" (pid {worker.pid})" if worker.pid is not None else ""
            lines.append(f"process {printable(worker.name)}{pid} of this run held {size(held)} ({source})")
    return lines


@rule("memory.masked")
def library_did_not_start(evidence: Evidence) -> Iterator[Finding]:
    """cuDNN or cuBLAS that fails to start is usually out of memory, unless its version is wrong."""
    log = evidence.log
    if log is None or "cuda.version-mismatch" in log.topics:
        return
    # What failed after its start may as well be the victim of a kernel that crashed.
    failed = "memory.library-failed" in log.topics and "hardware.fault" not in log.topics
    if not failed and "memory.masked" not in log.topics:
        return
    yield finding(
        "memory.masked",
        "error",
        "likely",
        evidence=log.lines_of("memory.masked", "memory.library-failed", "memory.refused"),
        action=ACTIONS["memory.masked"],
    )


@rule("memory.other-process", "config.inconsistent")
def driver_refuses(evidence: Evidence) -> Iterator[Finding]:
    """The driver had less than TensorFlow wanted: somebody else holds memory.

    A series that shrinks by a tenth each time is the allocator's back-off, which may yet succeed; one size
    refused again and again means that nothing is left. Under a limit above the device's size it must be refused.
    """
    log = evidence.log
    if log is None or not log.refusals.count or any(oom.requested_bytes for oom in ooms_of(evidence)):
        return
    refusals = log.refusals
    hopeless = refusals.constant_bytes is not None
    what = f"{refusals.count} allocations refused, from {size(refusals.first_bytes)} to {size(refusals.smallest_bytes)}"
    above = _above_the_device(evidence)
    if above is not None:
        granted, device = above
        yield finding(
            "config.inconsistent",
            "error" if hopeless else "warning",
            "fact",
            title=f"The limit of {size(granted)} is larger than the GPU, which has {size(_total(device))} in all",
            evidence=(what, f"GPU {device.index}, {device.name}", *log.lines_of("memory.refused")),
            action="Set a limit below what is free on the GPU, or none: TensorFlow takes nearly all by itself.",
            device_uuid=device.uuid,
        )
        return
    yield finding(
        "memory.other-process",
        "error" if hopeless else "warning",
        "likely",
        title="The driver has less memory to give than TensorFlow asks for",
        evidence=(what, *log.lines_of("memory.refused")),
        action=ACTIONS["memory.other-process"],
    )


def _above_the_device(evidence: Evidence) -> tuple[int, Device] | None:
    """What the framework's devices on one GPU may take together, where that is more than the GPU has."""
    granted: dict[str, int] = {}
    for mapping in evidence.device_map:
        device = device_behind(mapping, evidence.snapshot) if evidence.snapshot is not None else None
        if device is None or mapping.granted_bytes is None:
            continue
        granted[device.uuid] = granted.get(device.uuid, 0) + mapping.granted_bytes
        if 0 < _total(device) < granted[device.uuid]:
            return granted[device.uuid], device
    return None


def _total(device: Device) -> int:
    return int(device.number("memory.total_bytes") or 0)
