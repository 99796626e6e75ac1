"""Out of memory: whose fault, by the numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from gpuwatch.diagnosis.arithmetic import Surroundings, judge
from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.formatting.text import printable, shorten
from gpuwatch.formatting.units import size
from gpuwatch.model.findings import Finding, Severity
from gpuwatch.model.run import Oom

_LIMITING = re.compile(r"limit|fraction|virtual|logical_device", re.IGNORECASE)

ACTIONS = {
    "memory.model-too-large": "Make the batch or the model smaller, or use mixed precision.",
    "memory.request-too-large": "Split this tensor: a smaller batch, or the dataset kept on the CPU.",
    "memory.fragmented": "Set TF_GPU_ALLOCATOR=cuda_malloc_async, and keep the shapes of batches constant.",
    "memory.other-process": "Free the device, or choose another GPU with CUDA_VISIBLE_DEVICES.",
    "memory.context-failed": "Free the device: not even a CUDA context (some hundred MB) fits beside what is on it.",
    "memory.limit-too-small": "Raise the memory limit or fraction: the device has room for more.",
    "memory.masked": "Leave room for cuDNN and cuBLAS: set memory growth or a smaller limit, or free the device.",
}


def surroundings(evidence: Evidence, oom: Oom) -> Surroundings:
    """What the snapshot, the settings and the log add to an OOM's own numbers."""
    device = evidence.device_of(oom.device)
    if (
        device is None
        and oom.device == "GPU:0"
        and evidence.snapshot is not None
        and len(evidence.snapshot.devices) == 1
    ):
        device = evidence.snapshot.devices[0]
    total = device.number("memory.total_bytes") if device is not None else None
    others = device.number("memory.used_bytes") if device is not None else None
    run = evidence.run
    if run is not None:
        total = total if total is not None else run.memory.device_total_bytes
        others = others if others is not None else run.memory.nvml_before_bytes
    return Surroundings(
        total_bytes=int(total) if total is not None else None,
        others_bytes=int(others) if others is not None else None,
        limited=run is not None and any(_LIMITING.search(name) for name in run.settings),
        refusals=evidence.log.refusals.count if evidence.log is not None else 0,
    )


def judged(evidence: Evidence, ooms: tuple[Oom, ...]) -> tuple[Oom, ...]:
    """The failures, each with its verdict."""
    return tuple(msgspec.structs.replace(oom, verdict=judge(oom, surroundings(evidence, oom)).cause) for oom in ooms)


def ooms_of(evidence: Evidence) -> tuple[Oom, ...]:
    """The run's failures, else the log's."""
    if evidence.run is not None and evidence.run.ooms:
        return evidence.run.ooms
    return tuple(evidence.log.ooms) if evidence.log is not None else ()


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
    by_cause: dict[str, list[tuple[Oom, tuple[str, ...], bool]]] = {}
    for oom in ooms_of(evidence):
        judgement = judge(oom, surroundings(evidence, oom))
        by_cause.setdefault(judgement.cause, []).append((oom, judgement.lines, judgement.certain))
    for cause, failures in by_cause.items():
        expected = all(oom.expected for oom, _, _ in failures)
        severity: Severity = "info" if expected else "error"
        certain = all(certain for _, _, certain in failures)
        lines = [line for _, shown, _ in failures[:5] for line in shown]
        if cause in ("memory.other-process", "memory.context-failed"):
            lines += _holders(evidence, failures[0][0])
        if evidence.log is not None:
            lines += evidence.log.lines_of("memory.oom")[:2]
        device = evidence.device_of(failures[0][0].device)
        title = ""
        if any((oom.allocator or "") in ("cpu", "mklcpu") for oom, _, _ in failures):
            title = "Out of host memory (a CPU allocator), not of GPU memory"
        yield finding(
            cause,
            severity,
            "fact" if certain else "likely",
            title=title,
            evidence=lines,
            action=ACTIONS[cause],
            device_uuid=device.uuid if device is not None else None,
        )


def _holders(evidence: Evidence, oom: Oom) -> list[str]:
    """Who held memory on the device, largest first: others of the same run, and those before the start."""
    lines = _beside(evidence)
    if evidence.snapshot is None:
        return lines
    device = evidence.device_of(oom.device)
    held = [
        (process.number("gpu_memory_bytes") or 0, process)
        for process in evidence.snapshot.processes
        if device is None or process.device_uuid == device.uuid
    ]
    held.sort(key=lambda item: (-item[0], item[1].pid))
    return lines + [
        f"process {process.pid} ({process.user or 'unknown user'}) held {size(amount)}:"
        f" {shorten(printable(process.command or process.name or '–'), 80)}"
        for amount, process in held[:3]
        if amount > 0
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
    if log is None or "memory.masked" not in log.topics or "cuda.version-mismatch" in log.topics:
        return
    yield finding(
        "memory.masked",
        "error",
        "likely",
        evidence=log.lines_of("memory.masked", "memory.refused"),
        action=ACTIONS["memory.masked"],
    )


@rule("memory.other-process")
def driver_refuses(evidence: Evidence) -> Iterator[Finding]:
    """The driver had less than TensorFlow wanted: somebody else holds memory.

    A series that shrinks by a tenth each time is the allocator's back-off, which may yet succeed; one size
    refused again and again means that nothing is left.
    """
    log = evidence.log
    if log is None or not log.refusals.count or any(oom.requested_bytes for oom in ooms_of(evidence)):
        return
    refusals = log.refusals
    hopeless = refusals.constant_bytes is not None
    what = f"{refusals.count} allocations refused, from {size(refusals.first_bytes)} to {size(refusals.smallest_bytes)}"
    yield finding(
        "memory.other-process",
        "error" if hopeless else "warning",
        "likely",
        title="The driver has less memory to give than TensorFlow asks for",
        evidence=(what, *log.lines_of("memory.refused")),
        action=ACTIONS["memory.other-process"],
    )
