"""Environment variables that affect GPUs: their names, misspelled ones, and a value that TensorFlow ignores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.findings import Finding
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_registry import likely_warning, rule, warning_finding

KNOWN_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_CACHE_MAXSIZE", "CUDA_CACHE_PATH",
    "CUDA_CACHE_DISABLE", "CUDA_MODULE_LOADING", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_HOME", "CUDA_PATH",
    "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR",
    "TF_GPU_THREAD_MODE", "TF_GPU_THREAD_COUNT", "TF_PER_DEVICE_MEMORY_LIMIT_MB", "TF_MIN_GPU_MULTIPROCESSOR_COUNT",
    "TF_ENABLE_ONEDNN_OPTS", "TF_ENABLE_ZENDNN_OPTS", "TF_CPP_MIN_LOG_LEVEL", "TF_CPP_MIN_VLOG_LEVEL",
    "TF_CPP_MAX_VLOG_LEVEL", "TF_CPP_VMODULE", "TF_XLA_FLAGS", "TF_USE_LEGACY_KERAS",
    "TF_ENABLE_GPU_GARBAGE_COLLECTION", "XLA_FLAGS", "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
    "PYTORCH_NVML_BASED_CUDA_CHECK", "LD_LIBRARY_PATH",
)  # fmt: skip
"""Variables that affect GPUs; a name similar to one of them is reported as a typo."""
_GPU_VARIABLE = re.compile(
    r"^(?:CUDA_|CUDNN_|NVIDIA_|NCCL_|XLA_|PYTORCH_|TORCH_|KERAS_|TF_(?!VAR_|TOKEN_|CLI_|LOG|INPUT|DATA_DIR|WORKSPACE)"
    r"|LD_LIBRARY_PATH$|LD_PRELOAD$|CONDA_PREFIX$|VIRTUAL_ENV$|SLURM_JOB_GPUS$|SLURM_JOB_ID$)"
)
"""Variables that the doctor reports."""
_MIN_NAME_CHARS = 12
"""Shorter names are similar to too many others."""
_MAX_EDIT_DISTANCE = 2
_GROWTH_VARIABLE = "TF_FORCE_GPU_ALLOW_GROWTH"


def gpu_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that affect GPUs, also misspelled ones; no others are reported."""
    names = (name for name in sorted(environment) if _GPU_VARIABLE.match(name) or known_variable_meant(name))
    return {name: environment[name] for name in names}


@rule("visibility.misspelt")
def misspelled_variables(evidence: Evidence) -> Iterator[Finding]:
    """A variable whose name is nearly that of one that matters."""
    for name in sorted(evidence.variables):
        known = known_variable_meant(name)
        if known is None:
            continue
        effect, lines = _effect_on_gpus(evidence) if known == "CUDA_VISIBLE_DEVICES" else ("", ())
        case = " (names of variables are case-sensitive)" if name.upper() == known else ""
        yield likely_warning(
            "visibility.misspelt",
            title=f"{name} is not a variable that anything reads; {known} was probably meant{case}{effect}",
            evidence=(f"{name}={evidence.variables[name]}", *lines),
            action=f"Write {known}={evidence.variables[name]}",
        )


def _effect_on_gpus(evidence: Evidence) -> tuple[str, tuple[str, ...]]:
    """Which GPUs a program got although it meant to choose some, and how much of each it held."""
    run = evidence.program
    gpu_indices = sorted({entry.physical_index for entry in evidence.device_map if entry.physical_index is not None})
    if run is None or not gpu_indices:
        return "", ()
    listed = " and ".join(filter(None, [", ".join(map(str, gpu_indices[:-1])), str(gpu_indices[-1])]))
    got_text = f", so the program got GPU{'' if len(gpu_indices) == 1 else 's'} {listed}"
    known_devices = [entry for entry in run.memory.devices if entry.process_bytes is not None]
    held_texts = [f"{size(entry.process_bytes)} of GPU {entry.index}" for entry in known_devices]
    return got_text, (f"the program held {', '.join(held_texts)}, according to NVML",) if held_texts else ()


@rule("visibility.misspelt")
def growth_not_understood(evidence: Evidence) -> Iterator[Finding]:
    """TensorFlow accepts only "true" and "false" and ignores all other values."""
    value = evidence.variables.get(_GROWTH_VARIABLE)
    lines = evidence.log.lines_of("environment.growth-unread")
    if not lines and (value is None or value in ("true", "false")):
        return
    setting = f"{_GROWTH_VARIABLE}={value}" if value is not None else _GROWTH_VARIABLE
    yield warning_finding(
        "visibility.misspelt",
        title=f"{setting} is neither true nor false: TensorFlow ignores it and allocates nearly all memory",
        evidence=[*([setting] if value is not None else []), *lines],
        action=f"Set {_GROWTH_VARIABLE}=true, in lowercase.",
    )


def known_variable_meant(name: str) -> str | None:
    """The one of :data:`KNOWN_VARIABLES` that a name resembles, ignoring case; None for the names themselves."""
    if len(name) < _MIN_NAME_CHARS or name in KNOWN_VARIABLES:
        return None
    upper = name.upper()
    for known in KNOWN_VARIABLES:
        if len(known) >= _MIN_NAME_CHARS and edit_distance(upper, known, _MAX_EDIT_DISTANCE) <= _MAX_EDIT_DISTANCE:
            return known
    return None


def edit_distance(text: str, other: str, maximum: int) -> int:
    """Edit distance with transpositions; ``maximum + 1`` as soon as it must be larger than ``maximum``."""
    if abs(len(text) - len(other)) > maximum:
        return maximum + 1
    row_before_last: list[int] = []
    last_row = list(range(len(other) + 1))
    for i, a in enumerate(text, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            cost = min(last_row[j] + 1, row[j - 1] + 1, last_row[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and text[i - 2] == b:
                cost = min(cost, row_before_last[j - 2] + 1)
            row.append(cost)
        if min(row) > maximum:
            return maximum + 1
        row_before_last, last_row = last_row, row
    return min(last_row[-1], maximum + 1)
