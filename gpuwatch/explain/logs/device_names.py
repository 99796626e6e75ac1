"""Reads sizes, tensors' bytes, device names and PCI addresses in the text of log lines."""

from __future__ import annotations

import re
from functools import lru_cache

_SIZE = re.compile(r"^\**([\d.]+)\s*(B|bytes|[KMGTP]i?B?)?\**$", re.IGNORECASE)
_MAX_BYTES = float(1 << 70)
"""Larger numbers are not sizes."""
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}

_DEVICE = re.compile(r"(?:device:)?\b(X?LA_)?(GPU|CPU|TPU|cuda)(?::(\d{1,6}|\*))?", re.IGNORECASE)
_PCI = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-9a-fA-F])")

_DTYPE_BYTES = {
    "float": 4, "float32": 4, "half": 2, "float16": 2, "bfloat16": 2, "double": 8, "float64": 8, "int8": 1,
    "uint8": 1, "qint8": 1, "quint8": 1, "bool": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
    "uint64": 8, "complex64": 8, "complex128": 16, "resource": 8, "string": 24,
}  # fmt: skip


def size_bytes(text: str) -> int | None:
    """Bytes of ``2.25GiB``, ``496.00 MiB``, ``7.81G``, ``268435456``, ``0B``; None for anything else."""
    match = _SIZE.match(text.strip())
    if match is None:
        return None
    try:
        amount = float(match[1]) * _UNITS.get((match[2] or "")[:1].upper(), 1)
    except ValueError:
        return None
    return int(amount) if amount < _MAX_BYTES else None


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


def pci_address(text: str | None) -> str | None:
    """``0000:01:00.0``: lower case, four-digit domain, so that NVML's and TensorFlow's addresses compare equal."""
    match = _PCI.search(text or "")
    if match is None:
        return None
    domain = int(match[1], 16) if match[1] else 0
    return f"{domain:04x}:{match[2].lower()}:{match[3].lower()}.{match[4].lower()}"


def tensor_bytes(shape: str, dtype: str | None) -> int | None:
    """Bytes of ``shape[16,112,112,147] and type float``; None if a part is unknown."""
    width = _DTYPE_BYTES.get((dtype or "float").removeprefix("DT_").lower())
    if width is None:
        return None
    total = width
    for part in shape.split(","):
        part = part.strip()
        if not part:
            continue
        if not part.isdecimal() or len(part) > 15:
            return None
        total *= int(part)
        if total > _MAX_BYTES:
            return None
    return total
