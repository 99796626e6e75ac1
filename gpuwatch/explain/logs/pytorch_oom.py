"""PyTorch's out-of-memory messages (c10/cuda/CUDACachingAllocator.cpp), 1.0 to today.

``capacty`` is PyTorch's spelling in 2.1. Unlike TensorFlow's dump, the message has everything in one line, and "free"
is the device's, not the allocator's.
"""

from __future__ import annotations

import re

from gpuwatch.core.formatting.lazy_pattern import lazy
from gpuwatch.core.model.run import MemoryHolder, Oom
from gpuwatch.explain.logs.sizes_and_device_names import size_bytes

_OUT_OF_MEMORY = lazy(
    r"(?:CUDA|HIP|XPU|MPS backend) (?i:out of memory)(?:[.,:;!]| \(|[\s\"')]*$)|CUDA (?:driver )?error: out of memory"
    r"|(?i:HIP error: out of memory)"
    r"|cuda runtime error \(2\) : out of memory"
    r"|Tried to allocate [\d.]{1,24} ?(?:[KMGT]i?B|bytes)(?:\. GPU \d| \(GPU \d)"
)
_SIZE = r"((?<![\d.])[\d.]{1,24} ?(?:[KMGT]i?B|bytes))"
_ASKED = lazy(rf"Tried to allocate {_SIZE}")
_DEVICE = lazy(r"\(?GPU (\d+)")
_TOTAL = lazy(rf"{_SIZE} total capacity|total capac(?:i)?ty of {_SIZE}")
_FREE = lazy(rf"(?:of which )?{_SIZE} (?:is )?free")
_ALLOCATED = lazy(rf"{_SIZE} already allocated|allocated memory {_SIZE} is allocated by PyTorch")
_UNALLOCATED = lazy(rf"{_SIZE} is reserved by PyTorch but unallocated")
_OWN = lazy(rf"this process has {_SIZE} memory in use")
_RESERVED = lazy(rf"{_SIZE} (?:reserved in total by PyTorch|cached)")
_ALLOWED = lazy(rf"{_SIZE} allowed")
_HOLDER = lazy(rf"[Pp]rocess (\d{{1,10}}) has {_SIZE} memory in use")
_FRACTION = lazy(r"preemptively rejected.{0,300}?Requested size: ([\d.]{1,24} ?\w+)")

_MAX_CONTEXT_BYTES = 1 << 30
"""Maximum that a process holds outside its allocator: the CUDA context, and workspaces of libraries."""
_MAX_HOLDERS = 8


def is_out_of_memory(message: str) -> bool:
    """Whether this line is PyTorch's error; the exception's class name alone is not."""
    matches = (
        "ut of memory" in message or "f Memory" in message or "OF MEMORY" in message or "Tried to allocate" in message
    )  # the line may have been split
    return matches and _OUT_OF_MEMORY.search(message) is not None


def parse_oom(message: str) -> Oom:
    """The failure that the message describes, with its numbers in bytes."""
    fraction = _FRACTION.search(message)
    used = _find(_ALLOCATED, message)
    unallocated = _find(_UNALLOCATED, message)
    reserved = _find(_RESERVED, message)
    if unallocated is None and reserved is not None and used is not None:
        unallocated = max(reserved - used, 0)
    own, total = _find(_OWN, message), _find(_TOTAL, message)
    if own is not None and (own < (used or 0) or (total is not None and own > total)):
        own = None  # in containers, MIG and WSL the driver may tell 0 or nonsense
    found = ((match[1], size_bytes(match[2])) for match in _HOLDER.finditer(message))
    others = [MemoryHolder(pid=int(pid), held_bytes=held) for pid, held in found if held is not None][:_MAX_HOLDERS]
    if own is None and used is not None:
        own = used + (unallocated or 0)
        # In a container, where the driver's pids differ from its own, PyTorch lists itself as another process.
        same = [holder for holder in others if own <= holder.held_bytes <= own + _MAX_CONTEXT_BYTES]
        if len(same) == 1 and own > 0:
            others.remove(same[0])
            own = same[0].held_bytes
    device = _DEVICE.search(message)
    return Oom(
        device=f"GPU:{device[1]}" if device else None,
        allocator="pytorch",
        requested_bytes=size_bytes(fraction[1]) if fraction else _find(_ASKED, message),
        limit_bytes=_find(_ALLOWED, message),
        in_use_bytes=used,
        device_total_bytes=total,
        device_free_bytes=_find(_FREE, message),
        process_bytes=own,
        unallocated_bytes=unallocated,
        others=tuple(others),
        verdict="memory.limit-too-small" if fraction else None,
    )


def _find(pattern: re.Pattern[str], message: str) -> int | None:
    match = pattern.search(message)
    if match is None:
        return None
    return size_bytes(next(group for group in match.groups() if group is not None))
