"""Out of memory: who is responsible, by the numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from gpuwatch.core.formatting.units import memory, size
from gpuwatch.core.model.findings import Finding, Severity
from gpuwatch.core.model.memory_profile import MemoryProfile
from gpuwatch.core.model.run import Oom
from gpuwatch.core.model.snapshot import Device, Process
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.memory.memory_growth import equal_blocks, one_block_per_step
from gpuwatch.explain.diagnosis.memory.memory_holders import (
    GENERAL_ADVICE,
    concurrent_holders,
    free_memory_advice,
    holder_text,
    holders,
    holders_headline,
    is_negligible,
    others_during_run,
    samples_of,
)
from gpuwatch.explain.diagnosis.memory.oom_facts import full_device, growth_of, is_host_oom, ooms_of
from gpuwatch.explain.diagnosis.memory.oom_verdict import OTHERS_UNKNOWN, UNKNOWN_HOLDER_TITLE, OomVerdict, verdict_on
from gpuwatch.explain.diagnosis.reference.advice_table import framework_of, memory_advice
from gpuwatch.explain.diagnosis.rule_registry import error_finding, finding, healthy_finding, likely_error, rule
from gpuwatch.explain.diagnosis.rules.error_evidence import at_line, quoted
from gpuwatch.explain.diagnosis.rules.program_error_messages import row_named, section_rows
from gpuwatch.explain.diagnosis.rules.simulation_limits import errors_of_cuda_libraries
from gpuwatch.explain.logs.device_names import device_name
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.oom_messages import may_be_of_request
from gpuwatch.explain.traces.largest_holder import describe_largest_holder

ACTIONS = {row.key: row.action for row in section_rows("memory")} | {"memory.other-process": GENERAL_ADVICE}

_STATE_GROUPS = frozenset({"weights", "optimizer state", "other variables"})
_MAIN_PART_SHARE = 0.8
"""Share of the peak from which what is as large as the variables is what has to become smaller."""
_SMALLER_VARIABLES_ACTION = (
    "Make the largest variables smaller, or use an optimizer with less state (SGD, Adafactor) and sparse gradients"
    " (tf.gather of the variable itself): variables, their gradients and the optimizer's state fill it, regardless "
    "of the batch size."
)
_SHAPE = re.compile(r"shape\s?\[(\d+(?:,\d+)*)\]")
_SPLIT_ACTION = (
    "Compute this tensor in parts, or make its largest dimension ({}) smaller: its first is 1, so no smaller batch"
    " helps."
)
_CRASH_TOPICS = frozenset({"hardware.fault", "ended.kernel", "ended.assert", "ended.watchdog"})
"""Topics after which every call of a CUDA library fails."""
_LIBRARIES_START_BYTES = 1 << 30
"""With more than this free, cuDNN and cuBLAS start: their handles and workspaces take some hundred MB."""
_NOT_OF_MEMORY = re.compile(
    r"CU\w{2,4}_STATUS_(?:NOT_SUPPORTED|ARCH_MISMATCH|MAPPING_ERROR|BAD_PARAM|LICENSE_ERROR)\w*"
)
"""Statuses of cuDNN and cuBLAS that no lack of memory causes."""
_LOOK_FIRST_ACTION, _IF_GROWING_ACTION = row_named("look-first").action, row_named("if-growing").action
ADDRESS_SPACE = ("address_limit_bytes", "address_peak_bytes")
"""Names of the watcher's results: limit and peak of the address space of a process that ended in a MemoryError."""
_COPY_FAILED = "Dst tensor is not initialized"
"""TensorFlow's message for a copy from the host that does not fit on the GPU."""
_NOTABLE_TENSOR_SHARE = 0.1
"""Share of the allocator's limit from which one tensor is worth keeping on the CPU."""
_COPIED_OP = re.compile(r"in order to run (\w{1,80})")
_KEEP_ON_CPU_ACTION, _SHARE_GPU_ACTION = row_named("keep-on-cpu").action, row_named("share-gpu").action
_MAX_UNUSED_BYTES = 1 << 20
"""A device with less than this in use was hardly used, if at all."""


@rule(
    "memory.model-too-large",
    "memory.growing",
    "memory.request-too-large",
    "memory.fragmented",
    "memory.other-process",
    "memory.context-failed",
    "memory.limit-too-small",
    "driver.bad-state",
    "unknown",
)
def out_of_memory(evidence: Evidence) -> Iterator[Finding]:
    """One finding per cause, with the arithmetic of each failure as evidence."""
    by_cause: dict[tuple[str, bool], list[tuple[Oom, OomVerdict]]] = {}
    for oom in ooms_of(evidence):
        judged = verdict_on(evidence, oom)
        by_cause.setdefault((judged.cause, is_host_oom(oom)), []).append((oom, judged))
    for (cause, of_host), failures in by_cause.items():
        alike_failed = sum(elsewhere == of_host for _, elsewhere in by_cause) > 1
        if cause == "unknown" and alike_failed and all(judged.title == UNKNOWN_HOLDER_TITLE for _, judged in failures):
            continue  # they follow from the failures whose cause is known
        expected = all(oom.expected for oom, _ in failures)
        if evidence.run is None and evidence.log.went_on_after_oom:
            lines = [*evidence.log.lines_of("memory.oom", "memory.retried"), evidence.log.ending_line]
            title = "Memory ran out, and the program continued: no failure in the log"
            yield healthy_finding(title=title, evidence=lines)
            return
        severity: Severity = "info" if expected else "error"
        certain = all(judged.certain for _, judged in failures)
        lines = [line for _, judged in failures[:5] for line in judged.lines]
        if cause in ("memory.other-process", "memory.context-failed"):
            lines += _holders(evidence, failures[0][0])
        elif cause == "unknown":
            lines += _holders_in_table(evidence)
        device = full_device(evidence, failures[0][0])
        title = next((judged.title for _, judged in failures if judged.title), "")
        action = next((judged.action for _, judged in failures if judged.action), "")
        if cause in ("memory.other-process", "memory.context-failed"):
            title_of_holders, remedy = _holders_named(evidence, device, failures[0][0])
            title, action = title or title_of_holders * (cause == "memory.other-process"), action or remedy
        if cause == "unknown" and evidence.run is None:
            less_memory_action = memory_advice("memory.model-too-large", framework_of(evidence, lines), evidence)
            action = f"{less_memory_action} {action}".strip()
        action = action or memory_advice(cause, framework_of(evidence), evidence) or ACTIONS[cause]
        if action == ACTIONS.get(cause):
            action = _advice_beyond_batch_size(evidence, failures[0][0], cause) or action
        size_unknown = evidence.run is None and OTHERS_UNKNOWN in lines and failures[0][0].requested_bytes is None
        if size_unknown and action == ACTIONS[cause]:
            action = f"{_LOOK_FIRST_ACTION} {action[:1].lower()}{action[1:]}"
        if not expected:
            may_grow = cause in ("memory.growing", "memory.model-too-large") and not of_host
            grown = _growth_text(evidence, failures) if may_grow else ""
            alike = next(filter(None, (equal_blocks(oom) for oom, _ in failures)), None)
            if grown and cause == "memory.model-too-large":
                # Without steps it may as well be a model that is built layer by layer.
                certain, title, action = False, "GPU memory in use grew until no more was free", _IF_GROWING_ACTION
            elif cause == "memory.model-too-large" and alike is not None:
                action = _IF_GROWING_ACTION
                if alike.are_many:
                    tensors = f"{alike.count} equal tensors of {size(alike.each_bytes)} fill the GPU"
                    certain, title = False, f"{tensors}: a list that grows, or a model of equal layers"
            copied = _copied_text(evidence, failures[-1][0])
            copied = copied if cause in ("memory.model-too-large", "memory.request-too-large") else ""
            if copied and not grown:
                title, action = copied, _KEEP_ON_CPU_ACTION
            lines = [
                grown,
                _requested_at_text(evidence),
                *lines,
                _equal_blocks_text(evidence, failures),
                _unused_gpus_text(evidence, failures),
                _recorded_holder(evidence, failures[0][0]),
            ]
        reported = evidence.log.lines_of("memory.oom")
        lines += _framework_lines(reported, [oom for oom, _ in failures], several=len(by_cause) > 1)
        if of_host:
            title = "Out of host memory (a CPU allocator), not GPU memory"
            action = "Make the batch or the data kept in host memory smaller, or give the program more RAM."
            limited = _address_space_text(evidence, failures)
            if limited:
                title, certain = "Out of host memory: the process's address space is limited (ulimit -v)", False
                action = "Raise the limit (ulimit -v, resource.setrlimit(RLIMIT_AS)), or keep less data in host memory."
                lines.insert(0, limited)
        yield finding(
            cause,
            severity,
            "fact" if certain else "likely",
            title=title,
            evidence=lines,
            action=action,
            device_uuid=device.uuid if device is not None else None,
        )


def _advice_beyond_batch_size(evidence: Evidence, oom: Oom, cause: str) -> str:
    """What helps where the numbers show that no smaller batch does; else empty."""
    if cause == "memory.request-too-large":
        reported = evidence.log.lines_of("memory.oom")
        shapes = (_SHAPE.search(line) for line in reported if may_be_of_request(line, oom.requested_bytes))
        shape = next((found[1].split(",") for found in shapes if found), [])
        return _SPLIT_ACTION.format(max(map(int, shape))) if shape[:1] == ["1"] and len(shape) > 1 else ""
    profile, _ = _profile_of(evidence, oom)
    if cause != "memory.model-too-large" or profile is None or (oom.in_use_bytes or 0) > 1.1 * profile.peak_bytes:
        return ""
    shapes_of_state = {holder.shape for holder in profile.holders if holder.group in _STATE_GROUPS}
    fixed = sum(
        holder.allocated_bytes
        for holder in profile.holders
        if holder.group in _STATE_GROUPS or (holder.group == "gradients" and holder.shape in shapes_of_state)
    )
    return _SMALLER_VARIABLES_ACTION if fixed >= _MAIN_PART_SHARE * profile.peak_bytes else ""


def _profile_of(evidence: Evidence, oom: Oom) -> tuple[MemoryProfile | None, bool]:
    """The recording of the failure's device (``run --memory``), and whether several processes have one."""
    profiles = evidence.run.memory_profiles if evidence.run is not None else ()
    number = (oom.device or ":0").rpartition(":")[2]
    of_device = [profile for profile in profiles if profile.device.rpartition(":")[2] == number]
    in_use = oom.in_use_bytes or 0
    profile = min(of_device, key=lambda profile: abs(profile.peak_bytes - in_use) if in_use else 0, default=None)
    return profile, len({profile.pid for profile in of_device}) > 1


def _recorded_holder(evidence: Evidence, oom: Oom) -> str:
    """Who held the most of the device's memory, if it was recorded (``run --memory``)."""
    profile, several = _profile_of(evidence, oom)
    if profile is None:
        return ""
    profile = replace(profile, program_peak_bytes=max(profile.program_peak_bytes or 0, oom.in_use_bytes or 0))
    return describe_largest_holder(profile) + (f" (process {profile.pid})" if several else "")


def _address_space_text(evidence: Evidence, failures: list[tuple[Oom, OomVerdict]]) -> str:
    """The limit of the process's address space, if the request did not fit below it; else empty."""
    limit, peak = (evidence.result(name, int) for name in ADDRESS_SPACE)
    requested = failures[-1][0].requested_bytes
    if not limit or not peak or requested is None or peak + requested <= limit:
        return ""
    return f"peak of its address space {size(peak)} + {size(requested)} requested > its limit of {size(limit)}"


def _copied_text(evidence: Evidence, oom: Oom) -> str:
    """Describes the copy from the host during which memory ran out, if TensorFlow reports one; else empty.

    On a full GPU the smallest constant fails: only a copy with a notable share of the memory is the reason.
    """
    if oom.requested_bytes is not None and oom.requested_bytes < _NOTABLE_TENSOR_SHARE * (oom.limit_bytes or 0):
        return ""
    errors = [error.message for error in evidence.run.errors] if evidence.run is not None else []
    line = next((line for line in (*errors, *evidence.log.lines_of("memory.oom")) if _COPY_FAILED in line), None)
    if line is None:
        return ""
    op = match[1] if (match := _COPIED_OP.search(line)) else ""
    if op in ("", "_EagerConst"):
        return "Data copied from the host as one tensor did not fit on the GPU"
    return f"An input of {op}, copied from the host, did not fit on the GPU"


def _growth_text(evidence: Evidence, failures: list[tuple[Oom, OomVerdict]]) -> str:
    """The growth of memory in use over the run, if that filled the device; else empty, as of the next ones."""
    found = growth_of(evidence.run) if evidence.run is not None else None
    if found is None:
        return ""
    return (
        f"the minimum in use on {failures[0][0].device or 'the GPU'} rose from {size(found.first_bytes)} to"
        f" {size(found.last_bytes)} in {found.rises} rises over {found.seconds:.0f} s, and never fell again"
    )


def _requested_at_text(evidence: Evidence) -> str:
    """The user's source line that requested the memory; none for probes."""
    frame, of_probe = evidence.log.memory_request_frame, evidence.run is not None and not evidence.run.is_program
    return at_line("requested at", frame) if frame is not None and not of_probe else ""


def _equal_blocks_text(evidence: Evidence, failures: list[tuple[Oom, OomVerdict]]) -> str:
    """Tensors of one size that fill the device, as of a loop that keeps its results."""
    speed = evidence.run.throughput if evidence.run is not None else None
    for oom, _ in failures:
        if (found := equal_blocks(oom)) is not None:
            total, used = found.count * found.each_bytes, oom.in_use_bytes or 0
            same = "the same size" if found.is_requested_size else "one size"
            of = f" of {size(used)}" if not found.is_requested_size else " in all"
            steps = f", after {speed.steps} steps" if speed is not None and one_block_per_step(oom, speed) else ""
            text = f"{found.count} blocks of {same} ({size(found.each_bytes)}) were in use already, {size(total)}{of}"
            return text + steps
    return ""


def _unused_gpus_text(evidence: Evidence, failures: list[tuple[Oom, OomVerdict]]) -> str:
    """Other GPUs of the program with room: their bytes say nothing of whether ops ran there."""
    run = evidence.run
    if run is None or run.workers:
        return ""
    full = {device_name(oom.device) for oom, _ in failures if oom.device and not is_host_oom(oom)}
    peaks = {device_name(name): peak for name, peak in run.memory.allocators.items()}
    idle = [
        f"{name} ({size(entry.granted_bytes)} granted, at most {size(peaks[name])} in use)"
        for entry in run.device_map
        if (name := device_name(entry.framework_device)) not in full
        and entry.granted_bytes
        and peaks.get(name) is not None
        and peaks[name] < _MAX_UNUSED_BYTES
    ]
    return f"with room meanwhile: {', '.join(idle)}" if full and idle else ""


def _framework_lines(lines: tuple[str, ...], failures: list[Oom], *, several: bool) -> list[str]:
    """The framework's lines; if the numbers are shown already, only the line with the tensor's shape.

    ``several``: there are failures with another cause, whose lines are no evidence for this one.
    """
    if several:
        lines = tuple(line for line in lines if any(may_be_of_request(line, oom.requested_bytes) for oom in failures))
    if failures[0].limit_bytes is None:
        return list(lines[:2])
    return [next((line for line in lines if "shape" in line), lines[0])] if lines else []


def _holders(evidence: Evidence, oom: Oom) -> list[str]:
    """Who held memory on the device, largest first: other processes of the run, and those from before its start."""
    lines = []
    for mate in concurrent_holders(evidence, oom):
        pid = f" (pid {mate.pid})" if mate.name and mate.pid is not None else ""
        process_text = printable(mate.name) or mate.pid
        lines.append(f"process {process_text}{pid} of this run held {memory(mate.held_bytes)} ({mate.source})")
    if evidence.snapshot is None:
        return lines + _holders_in_table(evidence)
    others = _other_holders(evidence, full_device(evidence, oom))
    return lines + [holder_text(amount, process) for amount, process in others[:3]]


def _holders_named(evidence: Evidence, device: Device | None, oom: Oom) -> tuple[str, str]:
    """Who held it and what helps, if the machine was seen at the start; a run's own processes are distinguished."""
    snapshot, mates = evidence.snapshot, concurrent_holders(evidence, oom)
    if snapshot is not None:
        snapshot = others_during_run(snapshot, samples_of(evidence.run, device))
    if mates:
        largest = max(mates, key=lambda mate: mate.held_bytes)
        total = device.number("memory.total_bytes") if device is not None else None
        of = f" of GPU {device.index}'s {size(int(total))}" if device is not None and total else " of the GPU"
        process_text = f"The {printable(largest.name)} process" if largest.name else f"Process {largest.pid}"
        first = f"{process_text} of this run held {memory(largest.held_bytes)}"
        others = _other_holders(evidence, device)
        others_bytes = sum(amount for amount, _ in others)
        if is_negligible(others_bytes, int(total) if total else None):
            return f"{first}{of}", _SHARE_GPU_ACTION
        names = f"process {others[0][1].pid}" if len(others) == 1 else f"{len(others)} other processes"
        advice = f"{free_memory_advice(snapshot, device)} {_SHARE_GPU_ACTION}"
        return f"{first} and {names} {memory(others_bytes)}{of}", advice
    if snapshot is None or device is None:
        return "", ""
    need = (oom.requested_bytes or 0) + (oom.in_use_bytes or 0)
    return holders_headline(snapshot, device), free_memory_advice(snapshot, device, need)


def _other_holders(evidence: Evidence, device: Device | None) -> list[tuple[int, Process]]:
    """Processes of others that held memory on the device while the program ran there."""
    snapshot = evidence.snapshot
    if snapshot is None:
        return []
    return holders(others_during_run(snapshot, samples_of(evidence.run, device)), device)


def _holders_in_table(evidence: Evidence) -> list[str]:
    """Who held memory by the nvidia-smi table in the log, largest first."""
    held = [row for row in evidence.log.smi_processes if row.held_bytes]
    held.sort(key=lambda row: (-(row.held_bytes or 0), row.pid))
    return [
        f"nvidia-smi: process {row.pid} held {memory(row.held_bytes)} of GPU {row.gpu}: {quoted(row.name, 60)}"
        for row in held[:3]
    ]


@rule("memory.masked", "unknown", needs="log")
def library_did_not_start(evidence: Evidence, log: LogFacts) -> Iterator[Finding]:
    """cuDNN or cuBLAS that fails to start is usually out of memory, unless its version is wrong."""
    topics = set(log.topics)
    # What failed may as well be the victim of a kernel that crashed.
    if topics & {"cuda.version-mismatch", "simulation.limit", *_CRASH_TOPICS}:
        return
    if not topics & {"memory.library-failed", "memory.masked"} or errors_of_cuda_libraries(evidence.run):
        return
    lines = log.lines_of("memory.masked", "memory.library-failed", "memory.library-usage", "memory.refused")
    free = log.free_bytes_at_library_error
    status = next((match[0] for line in lines if (match := _NOT_OF_MEMORY.search(line))), "")
    why = f"with {status}" if status else ""
    if free is not None and free >= _LIBRARIES_START_BYTES:
        why = f"although {size(free)} of GPU memory was free"
    if why:
        yield error_finding(
            "unknown",
            title=f"cuDNN or cuBLAS failed to start {why}",
            evidence=lines,
            action="Look for a second cuDNN or CUDA (pip list, conda list, LD_LIBRARY_PATH): an incompatible version "
            "fails the same way.",
        )
        return
    action = memory_advice("memory.masked", framework_of(evidence), evidence) or ACTIONS["memory.masked"]
    yield likely_error("memory.masked", evidence=lines, action=action)
