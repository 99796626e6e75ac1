"""The effect of a process's environment variables on its GPUs, in words. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gpuwatch.core.model.snapshot import Device
from gpuwatch.core.model.visible_devices import visible_devices
from gpuwatch.ui.tables.process_columns import device_prefix

_ALMOST_VISIBLE = re.compile(r"CUDA_?VISIBLE_?(DEVICE|GPU)S?$|GPU_VISIBLE_DEVICES$", re.IGNORECASE)


class VariableEffect(NamedTuple):
    """A variable, its value (None: not set) and its effect."""

    name: str
    value: str | None
    effect: str
    wrong: bool = False


def variable_effects(
    environment: Mapping[str, str], framework: str | None, devices: Sequence[Device]
) -> list[VariableEffect]:
    """Variables that affect GPUs, with their effect; important ones that are not set come last."""
    found: list[VariableEffect] = []
    if "CUDA_VISIBLE_DEVICES" in environment:
        found.append(_visible_devices_effect(environment, framework, devices))
    found += [
        VariableEffect(name, value, "not a name that CUDA reads; it reads CUDA_VISIBLE_DEVICES", wrong=True)
        for name, value in environment.items()
        if name not in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES") and _ALMOST_VISIBLE.match(name)
    ]
    for name, effect_of in _EFFECTS.items():
        value = environment.get(name)
        if value is not None:
            effect = effect_of(value)
            found.append(VariableEffect(name, value, effect.lstrip("!"), wrong=effect.startswith("!")))
    name = (framework or "").partition(" ")[0]
    if name == "tensorflow" and not {"TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR"} & environment.keys():
        effect = "TensorFlow takes nearly all free memory, unless the program changes that"
        found.append(VariableEffect("TF_FORCE_GPU_ALLOW_GROWTH", None, effect))
    if "CUDA_VISIBLE_DEVICES" not in environment:
        found.append(VariableEffect("CUDA_VISIBLE_DEVICES", None, "it may see every GPU that its container has"))
    return found


def _visible_devices_effect(
    environment: Mapping[str, str], framework: str | None, devices: Sequence[Device]
) -> VariableEffect:
    value = environment["CUDA_VISIBLE_DEVICES"]
    seen = visible_devices(value, environment.get("CUDA_DEVICE_ORDER"), devices)
    prefix = device_prefix(framework)
    if seen.why_unsure:
        return VariableEffect("CUDA_VISIBLE_DEVICES", value, f"effect unknown: {seen.why_unsure}")
    if not devices:
        return VariableEffect("CUDA_VISIBLE_DEVICES", value, "no GPU is known here to compare with")
    parts = [f"{prefix or 'device '}{mapping.ordinal} is physical {mapping.index}" for mapping in seen.map]
    if seen.invalid is not None and not seen.hidden:
        end = f"the list ends at “{seen.invalid}”, which is not a GPU here or is listed twice"
        end += "" if parts else ": it sees no GPU"
        return VariableEffect("CUDA_VISIBLE_DEVICES", value, "; ".join([*parts, end]), wrong=True)
    return VariableEffect("CUDA_VISIBLE_DEVICES", value, ", ".join(parts) or "hides every GPU from it", wrong=not parts)


def _by_value(effects: Mapping[str, str], other: str) -> Callable[[str], str]:
    """The effect of a variable by its value; ``other``: that of any other value, which takes the place of ``{}``."""
    return lambda value: effects.get(value, other.format(value))


def _torch_allocator_effect(value: str) -> str:
    words = {
        "expandable_segments": _by_value({"True": "segments grow in place"}, "segments do not grow"),
        "max_split_size_mb": "blocks above {} MB are never split".format,
        "garbage_collection_threshold": "unused blocks are freed above {} of the memory".format,
        "backend": _by_value({"cudaMallocAsync": "CUDA's own pool"}, "allocator {}"),
        "roundup_power2_divisions": "requests are rounded up".format,
    }
    effects = []
    for part in re.findall(r"([\w]+)\s*:\s*(\[[^\]]*\]|[^,]*)", value):
        name, given = part[0], part[1].strip()
        effects.append(words[name](given) if name in words else f"{name} is {given}")
    return ", ".join(effects) or "!PyTorch expects name:value pairs here"


_GROWTH = {
    "true": "memory grows as needed and is not given back",
    "false": "nearly all free memory is taken at the start, whatever the program sets",
}
_HIDDEN_LEVELS = {
    str(level): f"its log hides {hidden}"
    for level, hidden in enumerate(("nothing", "INFO", "INFO and WARNING", "INFO, WARNING and ERROR"))
}
_CONTAINER = {
    "all": "the container was given every GPU",
    "none": "the container was given the driver but no GPU",
    **dict.fromkeys(("void", ""), "the container was given no GPU"),
}
_ASYNC_POOL = "CUDA's own pool: memory is taken as needed and can be given back"
_EFFECTS: dict[str, Callable[[str], str]] = {
    "CUDA_DEVICE_ORDER": _by_value({"PCI_BUS_ID": "numbered as in nvidia-smi"}, "numbered from the fastest GPU"),
    "TF_FORCE_GPU_ALLOW_GROWTH": _by_value(_GROWTH, "!TensorFlow accepts only true and false here, and ignores this"),
    "TF_GPU_ALLOCATOR": _by_value({"cuda_malloc_async": _ASYNC_POOL}, "allocator {}"),
    "TF_CPP_MIN_LOG_LEVEL": _by_value(_HIDDEN_LEVELS, "its log hides levels up to {}"),
    "PYTORCH_CUDA_ALLOC_CONF": _torch_allocator_effect,
    "PYTORCH_ALLOC_CONF": _torch_allocator_effect,
    "XLA_PYTHON_CLIENT_PREALLOCATE": lambda v: (
        "JAX takes memory as needed" if v.lower() in ("false", "0") else "JAX takes most of the memory at the start"
    ),
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "JAX takes {} of the memory at the start".format,
    "NVIDIA_VISIBLE_DEVICES": _by_value(_CONTAINER, "the container was given: {}"),
    "CUDA_LAUNCH_BLOCKING": _by_value(
        {"1": "the program waits for every kernel: slow, for debugging"}, "kernels run asynchronously"
    ),
    "NVIDIA_TF32_OVERRIDE": _by_value({"0": "TF32 is off"}, "TF32 override {}"),
    "CUDA_MPS_PIPE_DIRECTORY": "it shares GPUs through an MPS server".format,
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "it may use {} % of the SMs".format,
}
