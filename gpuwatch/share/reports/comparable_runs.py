"""Which runs can be compared with each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from gpuwatch.core.formatting.units import UNKNOWN
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.run import Run
from gpuwatch.experiment.probing.step_times import why_not_comparable
from gpuwatch.explain.logs.device_names import device_name
from gpuwatch.share.reports.report_text import clean, framework_text, names_with_counts

_WORK_PARAMETERS = (
    *("size", "batch", "units", "features", "image", "filters", "timesteps", "bytes", "dtype", "jit_compile"),
)
"""Parameters that decide how much work a step is."""
GPU_OF_RUN = re.compile(r"^\d+ (.*) ((?:GPU|MIG)-\S+)$")
"""A GPU in :attr:`Run.gpus`: its model and UUID."""


def is_user_program(run: Run) -> bool:
    """Whether it is the user's own program: of its work no more is known than the command."""
    return run.workload == "program"


def work_peak(run: Run) -> int | None:
    """Its peak by NVML in bytes; None for a probe that did no work, of which NVML may have seen half of its start."""
    memory = run.memory
    worked = is_user_program(run) or run.throughput is not None or memory.allocator_peak_bytes is not None
    return memory.nvml_peak_bytes if worked or any(worker.throughput for worker in run.workers) else None


def workload(run: Run, *, with_type: bool = True) -> str:
    """``matmul 512 float32, eagerly``: what one step computes, and how it was executed if known."""
    step = work_amount(run, with_type=with_type)
    execution = clean(run.throughput.execution) if run.throughput is not None and run.throughput.execution else ""
    return f"{step}, {execution}" if execution else step


def work_amount(run: Run, *, with_type: bool = True) -> str:
    """``matmul 512 float32``: what one step computes; of the user's program its command, ``python train.py``."""
    if is_user_program(run):
        return clean(run.title)
    parts = [clean(run.workload)]
    for name in _WORK_PARAMETERS:
        value = run.workload_parameters.get(name)
        if value is not None and value is not False:
            parts.append(clean(value) if name == "size" else f"{name} {clean(value)}")
    return " ".join([*parts, *(_types(run) if with_type else [])])


def _types(run: Run) -> list[str]:
    counts = Counter[str]()
    for placement in run.placements:
        if placement.dtype and "float" in placement.dtype:
            counts[placement.dtype] += placement.count
    return [clean(name) for name, _ in counts.most_common(1)]


def workloads(run: Run, other: Run) -> tuple[str, str]:
    """The workloads of both, with types and execution if those of both are known (a run that failed early has none)."""
    types_known = bool(_types(run)) and bool(_types(other))
    text = workload if run.throughput is not None and other.throughput is not None else work_amount
    return text(run, with_type=types_known), text(other, with_type=types_known)


def device_kind(run: Run) -> str:
    """``GPU``, ``CPU`` or ``simulated GPU, driver tier``: what the speed was measured on."""
    device = run.throughput.device if run.throughput is not None else None
    name = device_name(device) if device else ("GPU:0" if run.device_map else "CPU:0")
    if not name.startswith("GPU"):
        return "CPU"
    return f"simulated GPU, {clean(run.simulation)} tier" if run.simulated else "GPU"


def _device_key(run: Run) -> tuple[str, str]:
    """What must be equal to compare speeds: a simulated GPU computes on its host, each tier in its own way."""
    return device_kind(run), (clean(run.host) if run.simulated else "")


def same_work(run: Run, other: Run) -> bool:
    """Whether the speeds of two runs can be compared: another command may do another amount of work in a step."""
    return workload(run) == workload(other) and _device_key(run) == _device_key(other)


def why_speeds_alike(run: Run, other: Run) -> str:
    """Why their speeds do not differ; empty if they do."""
    if run is other:
        return "same speed within noise"
    if run.throughput is None or other.throughput is None:
        return "no speed measured"
    return why_not_comparable(run.throughput, other.throughput, simulated=run.simulated or other.simulated)


def gpu_models_text(run: Run) -> str:
    """The models of the machine's GPUs, ``2 × NVIDIA H200``."""
    names = (clean(match[1] if (match := GPU_OF_RUN.match(text)) else text) for text in run.gpus)
    return names_with_counts(names) or UNKNOWN


DISTINGUISHING_FACTS: tuple[Callable[[Run], str], ...] = (
    lambda run: framework_text(run.framework),
    lambda run: clean(run.host),
    gpu_models_text,
    lambda run: f"driver {clean(run.driver_version)}",
)
"""Properties by which runs of one configuration are told apart."""


def comparable_indices(runs: Sequence[Run]) -> tuple[int, ...]:
    """The largest set of runs that did the same work on the same kind of device, by index."""
    timed_indices = (index for index, run in enumerate(runs) if run.throughput and run.verdict in ("ok", "fallback"))
    groups = group_by(timed_indices, lambda index: (workload(runs[index]), _device_key(runs[index])))
    if not groups:
        return ()
    # Of equally large sets, prefer the one on GPUs.
    (_, _), members = max(groups.items(), key=lambda item: (len(item[1]), item[0][1][0] != "CPU", -item[1][0]))
    return tuple(members)
