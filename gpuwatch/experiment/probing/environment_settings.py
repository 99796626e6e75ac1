"""Environment variables of a run: those that it stores, and the GPU settings that a watched program got from them.

Sources: tensorflow/core/common_runtime/gpu/gpu_bfc_allocator.cc and gpu_device.cc (``TF_FORCE_GPU_ALLOW_GROWTH``,
``TF_GPU_ALLOCATOR``, ``TF_GPU_HOST_MEM_LIMIT_IN_MB``, ``TF_DEVICE_MIN_SYS_MEMORY_IN_MB``), c10/cuda/CUDAAllocatorConfig
(``PYTORCH_CUDA_ALLOC_CONF``, ``PYTORCH_ALLOC_CONF`` since 2.10), the CUDA programming guide (``CUDA_*``).
"""

from __future__ import annotations

from collections.abc import Mapping

from gpuwatch.core.model.run import INHERITED, Framework, Setting

_CUDA_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE")
_GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
_FRAMEWORK_VARIABLES = {
    "tensorflow": (
        *(_GROWTH, "TF_GPU_ALLOCATOR", "TF_GPU_HOST_MEM_LIMIT_IN_MB", "TF_DEVICE_MIN_SYS_MEMORY_IN_MB"),
        *("TF_GPU_THREAD_MODE", "TF_XLA_FLAGS", "XLA_FLAGS"),
    ),
    "torch": ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"),
}
# TensorFlow's prefixes are listed one by one: Terraform's TF_VAR_, TF_TOKEN_ and others hold secrets.
_STORED_PREFIXES = (
    *("CUDA_", "GPUWATCH_SIM", "LD_LIBRARY_PATH", "NCCL_", "NVIDIA_", "PYTORCH_", "XLA_"),
    *("TF_AUTOTUNE", "TF_CONFIG", "TF_CPP_", "TF_CUD", "TF_DETERMINISTIC", "TF_DEVICE_MIN", "TF_DISABLE_"),
    *("TF_ENABLE_", "TF_FORCE_", "TF_GPU_", "TF_MIN_GPU", "TF_MKL_", "TF_NUM_", "TF_PER_", "TF_USE_", "TF_XLA_"),
)
PARENT_PROCESS = "the process that starts this one"
"""Source of a value that no line of this process set; values set by a line name that line."""


def stored_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables about GPUs and frameworks, which are stored in a run; no others are.

    An empty one has no effect, except CUDA_VISIBLE_DEVICES, which then hides every GPU.
    """
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_STORED_PREFIXES) and (value or name == "CUDA_VISIBLE_DEVICES")
    }


def environment_settings(
    environment: Mapping[str, str],
    launch_environment: Mapping[str, str],
    framework: Framework | None,
    setting_lines: Mapping[str, str],
) -> dict[str, Setting]:
    """The variables that the framework reads. ``environment``: the program's; ``launch_environment``: that it was
    started with; ``setting_lines``: the lines of the program that set them, where known.
    """
    if framework is None:
        return {}
    settings = {}
    for name in (*_CUDA_VARIABLES, *_FRAMEWORK_VARIABLES.get(framework.name, ())):
        value = environment.get(name)
        if value is not None:
            source = INHERITED if launch_environment.get(name) == value else setting_lines.get(name, PARENT_PROCESS)
            effective = {"true": True, "false": False}.get(value) if name == _GROWTH else None
            is_ignored = name == _GROWTH and effective is None
            note = "TensorFlow accepts only true and false, and ignores this value" if is_ignored else ""
            settings[name] = Setting(asked=value, effective=effective, note=note, source=source)
    return settings
