"""How programs beside TensorFlow, JAX and PyTorch itself say that GPU memory ran out.

Sources: llama.cpp (ggml-cuda.cu), ComfyUI's and PyTorch's asynchronous allocator, PyTorch's report of an allocation
that failed (CUDACachingAllocator.cpp, which then asks NVML who holds the memory), torch-directml,
text-generation-inference (warm-up), RAPIDS' memory manager (RMM), HAMi-core (allocator.c).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpuwatch.core.model.run import Oom, RunError
from gpuwatch.explain.logs import pytorch_oom, tensorflow_and_jax_oom
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


def is_out_of_memory_error(error: RunError) -> bool:
    """Whether an exception reports that GPU memory ran out: by its class, or by any framework's message."""
    if "ResourceExhausted" in error.type or "OutOfMemory" in error.type:
        return True
    return pytorch_oom.is_out_of_memory(error.message) or tensorflow_and_jax_oom.ran_out(error.message)


def parse_oom(message: str) -> Oom | None:
    """The failure with the numbers that the message names; None for other messages."""
    for wording in _TABLE:
        if wording.text in message and (found := wording.pattern.search(message)) is not None:
            named = found.groupdict()
            asked = named.get("asked")
            return Oom(
                device=f"GPU:{int(named['device'])}" if named.get("device") else None,
                allocator=wording.program,
                requested_bytes=size_bytes(f"{asked} {named['unit']}") if asked else None,
                limit_bytes=int(named["limit"]) if named.get("limit") else None,
                verdict=wording.verdict,
            )
    return None
