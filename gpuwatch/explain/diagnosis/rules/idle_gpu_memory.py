"""GPU memory that is allocated but not used."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from gpuwatch.core.formatting.units import memory, percent, size
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import DeviceMapping, Run, RunProcess
from gpuwatch.core.model.run_memory import DeviceMemory
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.memory.memory_holders import held_at_once, is_negligible
from gpuwatch.explain.diagnosis.reference.advice_table import TENSORFLOW, framework_of
from gpuwatch.explain.diagnosis.rule_registry import info_finding, likely_info, rule, warning_finding
from gpuwatch.explain.diagnosis.rules.op_placement import REPLICAS
from gpuwatch.explain.logs.device_names import device_name, is_gpu

_MIN_ALLOCATED_SHARE, _MAX_USED_SHARE = 0.8, 0.1
"""Shares of the device that a program allocated, and of its limit that it used, for nearly all to be unused."""
_SMALL_MODEL_RATIO = 1000
"""A device with a replica of a small model has about as much in use as the others, not a fraction of it."""
_UNTOUCHED_BYTES = 64 << 10
"""Bytes that an allocator uses itself before its device is used."""
_ONE_SCALAR_BYTES, _MIN_MODEL_BYTES = 1 << 10, 1 << 20
"""A device with at most the first has no replica of a model, if another one has at least the second."""
_MIN_SAMPLES = 5
"""Samples of a GPU from which on its utilization tells that nothing ran there."""
_MIN_HELD_SECONDS = 20.0
"""For less nobody waits for the GPU, unless it is a training, however short."""
_MIN_STEPS = 20
_MIN_STEPS_SECONDS = 3.0
"""For steps of less than this, memory and kernels were not seen often enough."""
_MOVE_TO_GPU_ACTION = (
    "Move the model and each batch to the GPU (.to(device)) and leave them there: look for .cpu(), .to('cpu') and "
    "tensors created without device=. If it should run on the CPU, hide the GPU (CUDA_VISIBLE_DEVICES=-1)."
)
_FIND_CPU_OPS_ACTION = "Look for tf.device('/CPU:0'); gpuwatch run --placement shows where each op runs."
_MIN_OPS_SHARE = 0.9
"""Share of a program's ops from which on one scope holds all of its work."""
_HEAVY_OP = re.compile(r"MatMul|Conv\dD|Einsum|RNN")
CPU_SCOPE_TITLE = "tf.device"
"""Beginning of the title of a finding on a program that is on the CPU by its own line."""
_GPU_CHOOSING_SETTINGS = ("visible devices", "visible_device_list", "CUDA_VISIBLE_DEVICES")
"""Settings by which a program chooses its GPUs."""
_LONG_HELD_SECONDS = 120.0
"""Seconds from which on a program may gain by more GPUs."""

GROWTH_ACTION = (
    "Set memory growth (TF_FORCE_GPU_ALLOW_GROWTH=true or tf.config.experimental.set_memory_growth); on a shared "
    "GPU, use the variable with a memory_limit: memory then grows up to it."
)
_OTHER_FRAMEWORK_ACTION = (
    "Nothing to do if only this program uses the GPU; otherwise lower what it allocates at startup."
)


@rule("idle.memory-held", needs="run")
def allocated_by_default(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """The framework allocated nearly the whole device and used little of it."""
    if run.is_program and len(run.processes) > 1:
        return  # NVML's sum over processes, beside the peak of one
    if run.is_program and not _memory_matters(run):
        return
    peak, held, total = run.memory.allocator_peak_bytes, run.memory.nvml_peak_bytes, run.memory.device_total_bytes
    limit = run.memory.allocator_limit_bytes or max((m.granted_bytes or 0 for m in run.device_map), default=0)
    if peak is None or held is None or not total or not limit:
        return
    # With memory growth the limit is the same but NVML shows little: only allocated memory counts.
    if held >= _MIN_ALLOCATED_SHARE * total and peak <= _MAX_USED_SHARE * limit:
        yield info_finding(
            "idle.memory-held",
            title=f"{_framework_text(evidence)} allocated {size(held)} of{_of_gpu_text(run)} {size(total)}"
            f" and used at most {size(peak)}",
            evidence=(
                f"allocator's limit {size(limit)}, its peak in use {size(peak)}",
                f"NVML: this process held {memory(held)} of {size(total)}",
            ),
            action=GROWTH_ACTION if _framework_text(evidence) == "TensorFlow" else _OTHER_FRAMEWORK_ACTION,
        )


def _memory_matters(run: Run) -> bool:
    """Whether anybody may want the memory: others on the same GPU, or a program that stays for minutes."""
    own = next((device for device in run.memory.devices if device.uuid == run.memory.device_uuid), None)
    if own is None:
        return False
    return not is_negligible(own.others_peak_bytes or 0, own.total_bytes) or _held_seconds(own) >= _LONG_HELD_SECONDS


@rule("idle.memory-held", needs="program")
def leaves_gpus_idle(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """A program with one process held several GPUs and used some: the others are blocked for everybody else.

    By the peaks of its allocators; of a TF1 session, whose allocators nobody can read, by NVML's utilization.
    """
    if run.workers or len(run.processes) > 1 or run.ooms:
        return
    replicas = _replicas(evidence)
    stepped = run.throughput is not None and run.throughput.steps >= _MIN_STEPS
    min_seconds = 1.0 if stepped or replicas else _MIN_HELD_SECONDS
    held = {device.uuid: device for device in run.memory.devices if _held_seconds(device) >= min_seconds}
    peaks = {device_name(name): peak for name, peak in run.memory.allocators.items()}
    mapped = [entry for entry in run.device_map if entry.uuid in held and (not peaks or _device_of(entry) in peaks)]
    # Several logical devices on one GPU are another matter.
    if len({mapping.uuid for mapping in mapped}) != len(mapped):
        return
    highest_peak = max(peaks.values(), default=0)
    at_work = replicas | {device_name(placement.actual) for placement in run.placements}
    idle: dict[DeviceMapping, str] = {}
    used: dict[DeviceMapping, str] = {}
    for mapping in mapped:
        gpu_memory, device = held[mapping.uuid or ""], _device_of(mapping)
        peak, busy = peaks.get(device), gpu_memory.busiest_percent
        if peak is None and (busy is None or gpu_memory.own_samples < _MIN_SAMPLES):
            return
        usage = f"utilization at most {percent(busy)} in {gpu_memory.own_samples} samples"
        usage = usage if peak is None else f"its allocator's peak {size(peak)}"
        is_unused = peak <= min(_UNTOUCHED_BYTES, highest_peak // _SMALL_MODEL_RATIO) if peak is not None else busy == 0
        # A replica holds a copy of each variable, a batch and gradients: more than one scalar.
        no_replica = peak is not None and peak <= _ONE_SCALAR_BYTES and highest_peak >= _MIN_MODEL_BYTES
        if is_unused and ((no_replica and device in replicas) or device not in at_work):
            nvml = f"according to NVML the process held {memory(gpu_memory.process_bytes)}"
            idle[mapping] = f"{device} (GPU {mapping.physical_index}): {usage}, and {nvml}"
        else:
            used[mapping] = f"{device} (GPU {mapping.physical_index}): {usage}"
    if idle and used and (highest_peak or not peaks):
        ran_long = max(map(_held_seconds, held.values())) >= _LONG_HELD_SECONDS
        yield _unused_gpus_finding(evidence, idle, used, ran_long=ran_long)


@rule("idle.memory-held", needs="program")
def shares_beside_an_idle_gpu(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """Processes of one program on the same GPU at once, each of which saw another one that no process of it used."""
    used = {mapping.uuid for process in run.processes for mapping in process.device_map}
    for gpu in run.memory.devices:
        holding = [
            (process, holder)
            for process in run.processes
            for holder in gpu.holders
            if holder.pid == process.pid and {mapping.uuid for mapping in process.device_map} == {gpu.uuid}
        ]
        at_once = [
            process
            for process, holder in holding
            if any(process is not other and held_at_once(holder, others) for other, others in holding)
        ]
        gpus_seen = min(map(_physical_gpus, at_once), default=0)
        if len(at_once) < 2 or gpus_seen <= len(used) or not _others_free(evidence, used):
            continue
        pids = ", ".join(str(process.pid) for process in at_once[:6])
        yield likely_info(
            "idle.memory-held",
            title=f"{len(at_once)} processes of the program share GPU {gpu.index}, and {gpus_seen - len(used)} of"
            f" the {gpus_seen} GPUs that each of them sees had no work",
            evidence=[
                f"GPU {gpu.index}: processes {pids}, at the same time",
                *(
                    f"process {process.pid} sees {_physical_gpus(process)} GPUs and chose "
                    + ", ".join(f"GPU {mapping.physical_index}" for mapping in process.device_map)
                    for process in at_once[:6]
                ),
            ],
            action="Give each process its own GPU: check what it chooses by (its rank on this machine,"
            " LOCAL_RANK, or CUDA_VISIBLE_DEVICES set for each). Nothing to do if they share it on purpose.",
            device_uuid=gpu.uuid,
        )


def _physical_gpus(process: RunProcess) -> int:
    """GPUs that the framework sees in a process."""
    return sum(map(is_gpu, process.devices.physical))


def _others_free(evidence: Evidence, used: Collection[str | None]) -> bool:
    """Whether nobody held a notable part of the GPUs that the run did not use, as far as was seen."""
    unused = (device for device in evidence.gpus if device.uuid not in used)
    numbers = ([int(device.number(f"memory.{name}_bytes") or 0) for name in ("used", "total")] for device in unused)
    return all(is_negligible(held, total or None) for held, total in numbers)


@rule("idle.memory-held", needs="program")
def steps_without_the_gpu(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """A program took a GPU and makes its steps elsewhere: its framework holds nothing there meanwhile, or always the
    same, and NVML sees no kernel of it.

    A framework with tensors on the GPU may run kernels too short for NVML's samples, so that these alone are likely.
    """
    if len(run.processes) > 1 or not run.step_times or not run.memory.devices:
        return
    first, last = run.step_times[0], run.step_times[-1]
    begin = first.t - first.seconds
    points = [point for point in run.memory.timeline if begin <= point.t <= last.t and point.process_bytes]
    allocated, computing = {point.allocator_bytes for point in points}, [point.computes for point in points]
    if len(points) < 3 or last.t - begin < _MIN_STEPS_SECONDS or True in computing:
        return
    without_kernel = computing.count(False)
    mostly_without_kernel = without_kernel >= max(3, len(points) / 2)
    # What PyTorch has never allocated it does not report.
    never_allocated = not run.memory.allocators and run.framework is not None and run.framework.name == "torch"
    is_known = None not in allocated or never_allocated
    max_bytes = max((amount or 0 for amount in allocated), default=0) if is_known else None
    holds_nothing = max_bytes is not None and max_bytes <= (_UNTOUCHED_BYTES if mostly_without_kernel else 0)
    if not holds_nothing and not (len(allocated) == 1 and len(points) == without_kernel >= _MIN_SAMPLES):
        return
    yield warning_finding(
        "idle.memory-held",
        certainty="fact" if holds_nothing and mostly_without_kernel else "likely",
        title=f"Steps {first.number} to {last.number} did not use the GPU that the program had allocated",
        evidence=(
            f"from {begin:.1f} to {last.t:.1f} s the framework held {size(max_bytes)} on the GPU in all {len(points)}"
            f" samples; its peak {size(run.memory.allocator_peak_bytes)}",
            f"NVML: no kernel of the program in {without_kernel} of these samples"
            if without_kernel
            else "NVML does not report its kernels",
            f"according to NVML it kept {memory(points[-1].process_bytes)} of the GPU, its CUDA context included",
        ),
        action=_FIND_CPU_OPS_ACTION if framework_of(evidence) == TENSORFLOW else _MOVE_TO_GPU_ACTION,
    )


@rule("idle.memory-held", needs="program")
def steps_in_a_cpu_scope(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """With --placement: one ``with tf.device`` holds all of the steps' ops on the CPU, and the GPU's memory is unused.

    Not where the steps were seen for long enough to be told without that.
    """
    if len(run.processes) > 1 or not evidence.gpu_usable or not run.device_map:
        return
    steps, peaks = run.throughput.steps if run.throughput is not None else 0, run.memory.allocators.values()
    if steps < _MIN_STEPS or not peaks or max(peaks) > _UNTOUCHED_BYTES or any(steps_without_the_gpu(evidence, run)):
        return
    coverage = run.placement_coverage
    ops_by_scope: Counter[str | None] = Counter()
    for placement in run.placements:
        ops_by_scope[placement.scope if placement.requested == "CPU:0" else None] += placement.count
    total = ops_by_scope.total() + (coverage.unclear if coverage is not None else 0)
    del ops_by_scope[None]
    scope, count = next(iter(ops_by_scope.most_common(1)), (None, 0))
    in_scope = (placement for placement in run.placements if placement.scope == scope and placement.cuda_kernel)
    heavy = [placement for placement in in_scope if _HEAVY_OP.search(placement.op)]
    on_gpu = any(is_gpu(placement.actual) for placement in run.placements)
    heavy_op = f"{heavy[0].op} {heavy[0].dtype or ''}" if heavy else ""
    if not scope or not heavy or count < _MIN_OPS_SHARE * total or on_gpu:
        return
    yield info_finding(
        "idle.memory-held",
        certainty="fact",
        title=printable(f"{CPU_SCOPE_TITLE} at {scope} keeps the {steps} steps on the CPU: nothing ran on the GPU"),
        evidence=[
            printable(f"{scope}: {count} of {total} ops requested CPU:0, {heavy_op} among them"),
            f"the framework held at most {size(max(peaks))} on the GPU",
        ],
        action="Create and train the model outside that tf.device, and leave in it what should run on the host. If "
        "all of it should run on the CPU, hide the GPU (CUDA_VISIBLE_DEVICES=-1).",
    )


def _held_seconds(entry: DeviceMemory) -> float:
    """For how long the run itself was seen on a GPU."""
    periods = [(holder.first_seconds, holder.last_seconds) for holder in entry.holders if holder.own]
    return max((last - first for first, last in periods if first is not None and last is not None), default=0.0)


def _device_of(entry: DeviceMapping) -> str:
    return device_name(entry.framework_device)


def _unused_gpus_finding(
    evidence: Evidence, idle: Mapping[DeviceMapping, str], used: Mapping[DeviceMapping, str], *, ran_long: bool
) -> Finding:
    """``ran_long``: whether the program ran long enough to gain by more GPUs."""
    names = ", ".join(map(_device_of, idle))
    ordinals = ",".join(str(entry.cuda_ordinal) for entry in used)
    # Whoever asked for certain GPUs without effect is told that: these may not be the ones in use.
    settings = evidence.run.settings if evidence.run is not None else {}
    chose_gpus = any(name in settings for name in _GPU_CHOOSING_SETTINGS)
    can_name_ordinals = evidence.visible_devices is None and not chose_gpus and "None" not in ordinals
    hide = f" (CUDA_VISIBLE_DEVICES={ordinals})" if can_name_ordinals else ""
    title = f"The program used {len(used)} of the {len(idle) + len(used)} GPUs that it allocated: not {names}"
    strategy = (
        ", or let it use all of them: a distribution strategy (tf.distribute.MirroredStrategy; in PyTorch"
        " DistributedDataParallel)"
    )
    action = f"Hide unused GPUs{hide}{strategy if ran_long else ''}."
    if _replicas(evidence).issuperset(map(_device_of, idle)):
        title = f"The strategy has replicas on {len(idle) + len(used)} GPUs, and {names} had no part of the model"
        action = (
            "Create the model and its optimizer inside strategy.scope(), and run each step with strategy.run() (or "
            "model.fit): a strategy by itself distributes nothing."
        )
    return likely_info(
        "idle.memory-held",
        title=title,
        evidence=[*idle.values(), *used.values()][:8],
        action=action,
        device_uuid=next(iter(idle)).uuid,
    )


def _of_gpu_text(run: Run) -> str:
    """`` GPU 1's``, of several; the amounts are those of the fullest."""
    index = next((device.index for device in run.memory.devices if device.uuid == run.memory.device_uuid), None)
    return f" GPU {index}'s" if index is not None and len(run.memory.devices) > 1 else ""


def _framework_text(evidence: Evidence) -> str:
    return "TensorFlow" if framework_of(evidence) == TENSORFLOW else "The program"


def _replicas(evidence: Evidence) -> set[str]:
    """The devices of a MirroredStrategy: each does its share, however small the model is."""
    return {device_name(str(name)) for name in evidence.result(REPLICAS, dict).get("devices") or ()}
