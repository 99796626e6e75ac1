"""PyTorch's out-of-memory messages (c10/cuda/CUDACachingAllocator.cpp), 1.0 to today.

``capacty`` is theirs (2.1). Unlike TensorFlow's dump the message holds the whole story in one line, and
"free" is the device's, not the allocator's.
"""

from __future__ import annotations

import re

from gpuwatch.logs.clean import size_bytes
from gpuwatch.model.run import Oom

_SAID = re.compile(
    r"(?:CUDA|HIP|XPU|MPS backend) out of memory(?:[.,:;!]| \(|[\s\"')]*$)|CUDA error: out of memory"
    r"|cuda runtime error \(2\) : out of memory"
)
_SIZE = r"((?<![\d.])[\d.]{1,24} ?(?:[KMGT]i?B|bytes))"
_ASKED = re.compile(rf"Tried to allocate {_SIZE}")
_DEVICE = re.compile(r"\(?GPU (\d+)")
_TOTAL = re.compile(rf"{_SIZE} total capacity|total capac(?:i)?ty of {_SIZE}")
_FREE = re.compile(rf"(?:of which )?{_SIZE} (?:is )?free")
_ALLOCATED = re.compile(rf"{_SIZE} already allocated|allocated memory {_SIZE} is allocated by PyTorch")
_UNALLOCATED = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_OWN = re.compile(rf"this process has {_SIZE} memory in use")
_RESERVED = re.compile(rf"{_SIZE} (?:reserved in total by PyTorch|cached)")
_ALLOWED = re.compile(rf"{_SIZE} allowed")
_FRACTION = re.compile(r"preemptively rejected.{0,300}?Requested size: ([\d.]{1,24} ?\w+)")

_MOSTLY = 0.5


def is_out_of_memory(message: str) -> bool:
    """Whether this line is PyTorch's error (the name of its class alone is not)."""
    return "out of memory" in message and _SAID.search(message) is not None


def out_of_memory(message: str) -> Oom:
    """The failure with its verdict, which follows from numbers that an Oom has no fields for."""
    fraction = _FRACTION.search(message)
    asked = size_bytes(fraction[1]) if fraction else _find(_ASKED, message)
    total = _find(_TOTAL, message)
    free = _find(_FREE, message)
    used = _find(_ALLOCATED, message)
    unallocated = _find(_UNALLOCATED, message)
    reserved = _find(_RESERVED, message)
    if unallocated is None and reserved is not None and used is not None:
        unallocated = max(reserved - used, 0)
    allowed = _find(_ALLOWED, message)
    own = _find(_OWN, message)
    if own is None:
        own = (used or 0) + (unallocated or 0)
    device = _DEVICE.search(message)
    return Oom(
        device=f"GPU:{device[1]}" if device else None,
        allocator="pytorch",
        requested_bytes=asked,
        limit_bytes=allowed if allowed is not None else total,
        in_use_bytes=used,
        largest_free_bytes=None,
        verdict="memory.limit-too-small" if fraction else _verdict(asked, total, free, own, unallocated, allowed),
    )


def _verdict(
    asked: int | None,
    total: int | None,
    free: int | None,
    own: int,
    unallocated: int | None,
    allowed: int | None,
) -> str | None:
    if asked is None or total is None:
        return None
    if asked > total:
        return "memory.request-too-large"
    if unallocated is not None and unallocated >= asked:
        return "memory.fragmented"
    # Reserved and unallocated plus free would hold it, and most of the hole is PyTorch's own.
    if unallocated is not None and free is not None and unallocated + free >= asked > free and unallocated > free:
        return "memory.fragmented"
    if allowed is not None and own + asked > allowed:
        return "memory.limit-too-small"
    if free is not None and own + free < _MOSTLY * total:
        return "memory.other-process"
    if free is not None and free >= asked and own < _MOSTLY * total:
        return "memory.other-process"
    return "memory.model-too-large"


def _find(pattern: re.Pattern[str], message: str) -> int | None:
    match = pattern.search(message)
    if match is None:
        return None
    return size_bytes(next(group for group in match.groups() if group is not None))
