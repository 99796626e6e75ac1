"""A GPU's memory where NVML was not asked: as the log states it, or at least as the GPU's name implies."""

from __future__ import annotations

import re

from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.sizes_and_device_names import device_name

_GIB = 1 << 30
_USABLE_SHARE = 0.92
"""Share of the size in a name: decimal gigabytes, less ECC and the driver's part."""
_IN_NAME = re.compile(r"(?<![\w.])(\d{1,3}) ?Gi?B\b", re.IGNORECASE)

# Longer names first: an "RTX 3060 Ti" is not an RTX 3060.
_BY_MODEL: tuple[tuple[str, int], ...] = (
    ("RTX 2080 Ti", 11), ("RTX 3060 Ti", 8), ("RTX 3070 Ti", 8), ("RTX 3080 Ti", 12), ("RTX 3090 Ti", 24),
    ("RTX 4060 Ti", 8), ("RTX 4070 Ti", 12), ("GTX 1080 Ti", 11), ("GTX 1070 Ti", 8), ("GTX 1050 Ti", 4),
    ("GTX 1660 Ti", 6), ("RTX 2060", 6), ("RTX 2070", 8), ("RTX 2080", 8), ("RTX 3050", 4), ("RTX 3060", 6),
    ("RTX 3070", 8), ("RTX 3080", 10), ("RTX 3090", 24), ("RTX 4060", 8), ("RTX 4070", 8), ("RTX 4080", 12),
    ("RTX 4090", 16), ("RTX 5090", 24), ("GTX 1060", 3), ("GTX 1070", 8), ("GTX 1080", 8), ("GTX 970", 4),
    ("GTX 980 Ti", 6), ("GTX 980", 4), ("TITAN RTX", 24), ("TITAN Xp", 12), ("TITAN V", 12), ("TITAN X", 12),
    ("Tesla T4", 15), ("Tesla K80", 12), ("Tesla K40", 12), ("Tesla P4", 8), ("Tesla M60", 8), ("Tesla V100", 16),
    ("A10G", 24), ("NVIDIA A10", 24), ("NVIDIA L4", 24), ("NVIDIA L40", 45), ("NVIDIA A40", 45), ("A6000", 48),
    ("NVIDIA H200", 140),
)  # fmt: skip


def min_memory_of_model(name: str | None) -> int | None:
    """Minimum bytes of a GPU with this name; None if the name does not say."""
    if not name:
        return None
    if match := _IN_NAME.search(name):
        return int(int(match[1]) * _GIB * _USABLE_SHARE)
    for model, gib in _BY_MODEL:
        if re.search(rf"(?<!\w){re.escape(model)}(?!\w)", name):
            return int(gib * _GIB * _USABLE_SHARE)
    return None


def gpu_memory_in_log(log: LogFacts, framework_device: str | None) -> tuple[int | None, bool]:
    """Bytes of the GPU behind ``GPU:0``, and whether the log states them (else they follow from the name)."""
    wanted = device_name(framework_device) if framework_device else None
    mapping = next((entry for entry in log.device_map if device_name(entry.framework_device) == wanted), None)
    if mapping is None:
        return None, False
    totals = [gpu.total_bytes for gpu in log.gpus if gpu.total_bytes and gpu.pci_bus_id == mapping.pci_bus_id]
    if totals and mapping.pci_bus_id is not None:
        return totals[-1], True
    return min_memory_of_model(mapping.name), False
