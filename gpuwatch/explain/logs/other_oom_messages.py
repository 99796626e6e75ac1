"""How programs beside TensorFlow, JAX and PyTorch itself say that GPU memory ran out.

Sources: llama.cpp (ggml-cuda.cu), ComfyUI's and PyTorch's asynchronous allocator, PyTorch's report of an allocation
that failed (CUDACachingAllocator.cpp, which then asks NVML who holds the memory), torch-directml,
text-generation-inference (warm-up), RAPIDS' memory manager (RMM), HAMi-core (allocator.c).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpuwatch.core.model.run import Oom
from gpuwatch.explain.logs.allocator_dump import OomDraft
from gpuwatch.explain.logs.sizes_and_device_names import size_bytes


class _Wording(NamedTuple):
    text: str
    """In each such message."""
    pattern: re.Pattern[str]
    """With the groups ``asked``, ``unit``, ``device`` and ``limit`` where the message names them."""
    program: str
    verdict: str | None = None


_TABLE = (
    _Wording(
        "cudaMalloc failed: out of memory",
        re.compile(r"allocating (?P<asked>[\d.]{1,20}) (?P<unit>MiB) on device (?P<device>\d{1,3}):"),
        "llama.cpp",
    ),
    _Wording("Allocation on device", re.compile(r"Allocation on device(?: (?P<device>\d{1,3}) would| *$)"), "pytorch"),
    _Wording("INTERNAL ASSERT FAILED", re.compile(r"NVML_SUCCESS == .{1,200}\bCUDACachingAllocator\.cpp"), "pytorch"),
    _Wording(
        "not enough GPU video memory",
        re.compile(r"(?:allocate tensor with (?P<asked>\d{1,18}) (?P<unit>bytes)\. )?There is not enough GPU video"),
        "DirectML",
    ),
    _Wording("(failed to allocate ", re.compile(r"\(failed to allocate (?P<asked>\d{1,18}) (?P<unit>bytes)\)"), "RMM"),
    _Wording("DML allocator out of memory", re.compile("DML"), "DirectML"),
    _Wording(
        "prefill tokens",
        re.compile(r"Not enough memory to handle (?:\d{1,12} total tokens with )?\d{1,12} prefill tokens"),
        "text-generation-inference",
    ),
    _Wording(
        " OOM ",
        re.compile(r"Device (?P<device>\d{1,3}) OOM \d{1,20} / (?P<limit>\d{1,20})\b"),
        "HAMi",
        "memory.limit-too-small",
    ),
    _Wording("cuMemoryAllocate failed res=2", re.compile("cuMem"), "HAMi", "memory.limit-too-small"),
)

# PyTorch's CPU allocator, NumPy.
_HOST_MEMORY = re.compile(
    r"DefaultCPUAllocator: (?:not enough memory|can't allocate memory): you tried to allocate (\d{1,18}) bytes"
    r"|MemoryError: Unable to allocate ([\d.]{1,24} [KMGT]?i?B) for an array"
)
# ONNX Runtime, PaddlePaddle.
_GPU_MEMORY = re.compile(
    r"Failed to allocate memory for requested buffer of size (\d{1,18})"
    r"|Cannot allocate ([\d.]{1,24}[KMGT]?B) memory on GPU (\d{1,6})"
)
_CUPY = re.compile(
    r"Out of memory allocating ([\d,]{1,24}) bytes"
    r" \(allocated so far: ([\d,]{1,24}) bytes(?:, limit set to: ([\d,]{1,24}) bytes)?"
)
"""With what CuPy's pool holds."""
_LIBRARY_TEXTS = ("DefaultCPUAllocator", "Unable to allocate", "requested buffer of size", "Cannot allocate")
"""Lines that match :data:`_HOST_MEMORY` or :data:`_GPU_MEMORY` contain one of these."""


def parse_oom(message: str) -> Oom | None:
    """The failure with the numbers that the message names; None for other messages."""
    for wording in _TABLE:
        if wording.text in message and (found := wording.pattern.search(message)) is not None:
            parts = found.groupdict()
            asked = parts.get("asked")
            return Oom(
                device=f"GPU:{int(parts['device'])}" if parts.get("device") else None,
                allocator=wording.program,
                requested_bytes=size_bytes(f"{asked} {parts['unit']}") if asked else None,
                limit_bytes=int(parts["limit"]) if parts.get("limit") else None,
                verdict=wording.verdict,
            )
    return None


def library_oom(message: str) -> OomDraft | None:
    """A failure of host memory (PyTorch, NumPy), or of GPU memory in CuPy, ONNX Runtime or PaddlePaddle; else None."""
    if match := _CUPY.search(message):
        requested, used, limit = (None if part is None else int(part.replace(",", "")) for part in match.groups())
        oom = Oom(allocator="cupy", requested_bytes=requested, limit_bytes=limit, in_use_bytes=used)
        return OomDraft(oom, exact=True)
    if not any(text in message for text in _LIBRARY_TEXTS):
        return None
    if match := _HOST_MEMORY.search(message):
        requested = int(match[1]) if match[1] else size_bytes(match[2])
        return OomDraft(Oom(requested_bytes=requested, device="CPU:0", allocator="cpu"))
    if match := _GPU_MEMORY.search(message):
        requested = int(match[1]) if match[1] else size_bytes(match[2])
        return OomDraft(Oom(requested_bytes=requested, device=f"GPU:{int(match[3])}" if match[3] else None))
    return None
