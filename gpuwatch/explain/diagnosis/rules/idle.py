"""GPU memory that is allocated but not used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuwatch.core.formatting.units import memory, percent, size
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import DeviceMapping, Run
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.reference.advice import framework_of
from gpuwatch.explain.diagnosis.reference.advice_table import TENSORFLOW
from gpuwatch.explain.diagnosis.rule_registry import finding, rule
from gpuwatch.explain.diagnosis.rules.placement import REPLICAS
from gpuwatch.explain.logs.clean import device as device_name

_MAPPED_SHARE = 0.8
_USED_SHARE = 0.1
_TINY = 1000
"""A device with a replica of a small model has about as much in use as the others, not a fraction of it."""
_UNTOUCHED = 64 << 10
"""Bytes that an allocator uses itself before its device is used."""
_SAMPLES = 5
"""Samples of a GPU, a second apart, from which on its utilization tells that nothing ran there."""

GROWTH = (
    "Set memory growth (TF_FORCE_GPU_ALLOW_GROWTH=true or tf.config.experimental.set_memory_growth); on a shared GPU"
    " the variable with a memory_limit, which is then grown to."
)


_NEUTRAL = "Nothing to do if the GPU is the program's alone; else lower what it allocates at its start."


@rule("idle.memory-held")
def mapped_by_default(evidence: Evidence) -> Iterator[Finding]:
    """TensorFlow allocated nearly the whole device and used little of it."""
    run = evidence.run
    if run is None or (run.group == "run" and len(run.processes) > 1):
        return  # NVML's sum over processes, beside the peak of one
    peak, held, total = run.memory.allocator_peak_bytes, run.memory.nvml_peak_bytes, run.memory.device_total_bytes
    limit = run.memory.allocator_limit_bytes or max((m.granted_bytes or 0 for m in run.device_map), default=0)
    if peak is None or held is None or not total or not limit:
        return
    # With memory growth the limit is the same but NVML shows little: only allocated memory counts.
    if held >= _MAPPED_SHARE * total and peak <= _USED_SHARE * limit:
        yield finding(
            "idle.memory-held",
            "info",
            "fact",
            title=f"{_name(evidence)} allocated {size(held)} of {size(total)} and used at most {size(peak)}",
            evidence=(
                f"allocator's limit {size(limit)}, its peak in use {size(peak)}",
                f"NVML: this process held {memory(held)} of {size(total)}",
            ),
            action=GROWTH if _name(evidence) == "TensorFlow" else _NEUTRAL,
        )


@rule("idle.memory-held")
def takes_and_does_not_use(evidence: Evidence) -> Iterator[Finding]:
    """A program with one process used only some of its GPUs: the others are blocked for everybody else."""
    run = evidence.run
    if run is None or run.group != "run" or run.workers or len(run.processes) > 1 or run.ooms:
        return
    peaks = {device_name(name): peak for name, peak in run.memory.allocators.items()}
    held = {entry.uuid: entry.process_bytes for entry in run.memory.devices}
    most = max(peaks.values(), default=0)
    at_work = _replicas(run) | {device_name(one.actual) for one in run.placements}
    taken = [entry for entry in run.device_map if device_name(entry.framework_device) in peaks]
    idle = [
        entry
        for entry in taken
        if (name := device_name(entry.framework_device)) not in at_work
        and peaks[name] <= min(_UNTOUCHED, most // _TINY)
        and held.get(entry.uuid or "")
    ]
    used = [entry for entry in taken if entry not in idle]
    # Several logical devices on one GPU are another matter.
    cards = {entry.uuid for entry in taken}
    if not most or not idle or not used or len(cards) != len(taken):
        return
    lines = [
        f"{_shown(entry)}: its allocator's peak {size(peaks[device_name(entry.framework_device)])},"
        f" by NVML the process held {memory(held[entry.uuid or ''])}"
        for entry in idle
    ]
    yield _unused(evidence, idle, used, lines)


@rule("idle.memory-held")
def session_leaves_idle(evidence: Evidence) -> Iterator[Finding]:
    """A TF1 session, whose allocators nobody can read: a GPU that NVML saw at work in no sample, beside one at work."""
    run = evidence.run
    if run is None or run.group != "run" or run.workers or len(run.processes) > 1 or run.ooms or run.memory.allocators:
        return
    load = {entry.uuid: entry for entry in run.memory.devices if entry.own_samples >= _SAMPLES}
    taken = [entry for entry in run.device_map if entry.uuid in load]
    idle = [entry for entry in taken if load[entry.uuid or ""].busiest_percent == 0]
    used = [entry for entry in taken if (load[entry.uuid or ""].busiest_percent or 0) > 0]
    at_work = {device_name(one.actual) for one in run.placements}
    if not idle or not used or len(load) != len(run.device_map) or at_work & {*map(_device, idle)}:
        return
    lines = [
        f"{_shown(entry)}: utilization 0 % in all {found.own_samples} samples, held {memory(found.process_bytes)}"
        for entry in idle
        if (found := load[entry.uuid or ""])
    ]
    lines += [f"{_shown(entry)}: up to {percent(load[entry.uuid or ''].busiest_percent)}" for entry in used]
    yield _unused(evidence, idle, used, lines)


def _device(entry: DeviceMapping) -> str:
    return device_name(entry.framework_device)


def _shown(entry: DeviceMapping) -> str:
    return f"{device_name(entry.framework_device)} (GPU {entry.physical_index})"


def _unused(
    evidence: Evidence, idle: Sequence[DeviceMapping], used: Sequence[DeviceMapping], lines: Sequence[str]
) -> Finding:
    names = ", ".join(map(_device, idle))
    only = ",".join(str(entry.cuda_ordinal) for entry in used)
    hide = f" (CUDA_VISIBLE_DEVICES={only})" if evidence.visible_devices is None and "None" not in only else ""
    return finding(
        "idle.memory-held",
        "info",
        "likely",
        title=f"The program used {len(used)} of the {len(idle) + len(used)} GPUs that it allocated: not {names}",
        evidence=lines[:8],
        action=f"Hide unused GPUs{hide}, or let it use all of them: a distribution strategy"
        " (tf.distribute.MirroredStrategy; in PyTorch DistributedDataParallel).",
        device_uuid=idle[0].uuid,
    )


def _name(evidence: Evidence) -> str:
    return "TensorFlow" if framework_of(evidence) == TENSORFLOW else "The program"


def _replicas(run: Run) -> set[str]:
    """The devices of a MirroredStrategy: each does its share, however small the model is."""
    found = run.results.get(REPLICAS)
    names = found.get("devices") if isinstance(found, dict) else None
    return {device_name(str(name)) for name in names or ()}
