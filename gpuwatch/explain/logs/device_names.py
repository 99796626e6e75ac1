"""Names of devices as frameworks and drivers write them: in one spelling, PCI addresses included."""

from __future__ import annotations

import re
from functools import lru_cache

_DEVICE = re.compile(r"(?:device:)?\b(X?LA_)?(GPU|CPU|TPU|cuda|(?<=device:)CUSTOM)(?::(\d{1,6}|\*))?", re.IGNORECASE)
_PCI = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-9a-fA-F])")

_SIMULATED_DEVICE_TYPE = "GPU_CUDA"
"""Device type of the CUDA kernels in a process whose GPUs are simulated as a plug-in (sim/csrc/plugin_rename.c)."""
NOT_SIMULATED = "CUDA, not simulated"


def explain_device_type(text: str) -> str:
    """A log line or message for display: explains the device type that only gpuwatch's simulation has."""
    return text.replace(_SIMULATED_DEVICE_TYPE, NOT_SIMULATED) if _SIMULATED_DEVICE_TYPE in text else text


@lru_cache(1024)  # a log names few devices, many times
def device_name(text: str) -> str:
    """``GPU:0`` for any spelling (``/job:…/device:GPU:0``, ``/gpu:0``); text without a device is returned unchanged."""
    *_, found = (None, *_DEVICE.finditer(text))
    if found is None:
        return text
    kind = found[2].upper()
    if kind == "CUDA" and not (found[2] == kind and found[3]):  # PyTorch's cuda:0; TensorFlow knows no such type
        kind = "GPU"
    prefix = "XLA_" if found[1] else ""
    return f"{prefix}{kind}:{found[3] if found[3] == '*' else int(found[3] or 0)}"


def is_gpu(name: str) -> bool:
    """Whether a framework's name of a device is a GPU's: TensorFlow's ``/device:GPU:0``, PyTorch's ``cuda:0``, JAX's
    ``rocm:0``."""
    return "GPU" in name or name.startswith(("cuda", "rocm"))


def pci_address(text: str | None) -> str | None:
    """``0000:01:00.0``: lower case, four-digit domain, so that NVML's and TensorFlow's addresses compare equal."""
    match = _PCI.search(text or "")
    if match is None:
        return None
    domain = int(match[1], 16) if match[1] else 0
    return f"{domain:04x}:{match[2].lower()}:{match[3].lower()}.{match[4].lower()}"
