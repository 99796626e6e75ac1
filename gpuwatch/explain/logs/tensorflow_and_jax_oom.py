"""Messages of TensorFlow, JAX and XLA that memory ran out, and what they say of the request.

One failure has many lines (the allocator's dump, OP_REQUIRES, rendezvous, Python's error, "2 root error(s)"), which
:mod:`gpuwatch.explain.logs.oom_collector` combines.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpuwatch.core.model.run import Oom
from gpuwatch.explain.logs.allocator_dump import ALIGNMENT_BYTES, OomDraft
from gpuwatch.explain.logs.sizes_and_device_names import device_name, size_bytes, tensor_bytes

_HEAD = re.compile(
    r"(?:Allocator \((\S+?)\) )?[Rr]an out of memory trying to allocate "
    r"\**([\d.]{1,24} ?[KMGTP]?i?B?)\**(?: \(rounded to (\d{1,18})\))?"
)
_TENSOR = re.compile(
    r"OOM when allocating (?:temporary )?tensor (?:of|with) shape ?\[([\d,\s]*)\]"
    r"(?: and type (\w+))?(?: on (\S+))?(?: by allocator (\w+))?"
)
_REFUSED = re.compile(r"failed to allocate ([\d.]{1,24}\w{0,8}) \((\d{1,18}) bytes\) from device")
_XLA = re.compile(
    r"Out of memory (?:while trying to allocate|allocating) ([\d,]{1,24}(?:\.\d{1,9})?)\s?(bytes|[KMGTP]i?B\b|B\b)"
    r"(?: with allocator (\S{1,80}) on device (\d{1,6}))?"
)
"""Since 2025 with a rounded size and the allocator's name."""
_ASYNC = re.compile(r"(?<!\S)(\S{1,80}) cuMemAllocAsync failed to allocate (\d{1,18})(?!\d)")
# JAX's allocator, and TensorFlow before 0.7.
_BYTES_REQUEST = re.compile(r"Failed to allocate request for \S{1,24} \((\d{1,18})B\) on device ordinal (\d{1,6})")
_NO_SHAPE = re.compile(r"OOM when allocating (?:temporary )?tensor(?: (?:with|of) shape ?)?$")
_PROTO_SHAPE = re.compile(r"OOM when allocating tensor with shapedim \{ size: \d+ \}(?: dim \{ size: \d+ \}){0,10}")
_ORDINAL = re.compile(r"(?:device ordinal |StreamExecutor for CUDA:|on GPU:)(\d{1,6})")
_ALLOCATOR_DEVICE = re.compile(r"(?:GPU|PluggableDevice)_(\d+)_bfc|gpu_async_(\d+)|gpu_host_bfc")
_COPY = re.compile(r"to (\S*?GPU:\d+) in order to run")
_CONTEXT = (
    "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY",
    "Bad StatusOr access: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY",
    "cuCtxCreate: CUDA_ERROR_OUT_OF_MEMORY",
    "might have already set an error? Error 2: out of memory",
    "failed. Status: out of memory",  # cudaSetDevice(), the runtime's implicit initialization
)
_WITHOUT_DUMP = (
    "Dst tensor is not",
    "Failed to allocate request for",
    "unable to allocate output tensor",
    "failed to allocate memory",
    "cudaMalloc failed: out of memory",
    "cudaMalloc retry failed: out of memory",
)

_WHOLE_DEVICE = re.compile(r"(?:XLA_)?[CG]PU:\d+")


class FailedRequest(NamedTuple):
    """A request that a message names; bytes are None if it does not."""

    allocator: str | None
    device: str | None
    requested_bytes: int | None


def parse_dump_head(message: str) -> FailedRequest | None:
    """The request of ``ran out of memory trying to allocate``, with which a dump begins; None for other messages."""
    if (match := _HEAD.search(message)) is None:
        return None
    requested = int(match[3]) if match[3] else size_bytes(match[2])
    return FailedRequest(match[1], device_of_allocator(match[1]), requested)


def parse_tensor_request(message: str) -> FailedRequest | None:
    """The request of ``OOM when allocating tensor with shape``; None for other messages, and where it is cut off."""
    if (match := _TENSOR.search(message)) is not None:
        device = device_name(match[3] or "")
        if _WHOLE_DEVICE.fullmatch(device) is None or not (match[3] or "")[-1:].isdigit():
            return FailedRequest(match[4], device_of_allocator(match[4]), tensor_bytes(match[1], match[2]))
        return FailedRequest(match[4], device, tensor_bytes(match[1], match[2]))
    if (match := _PROTO_SHAPE.search(message)) is not None:  # TensorFlow 0.x
        return FailedRequest(None, None, tensor_bytes(",".join(re.findall(r"\d+", match[0])), None))
    return None


def is_tensor_request_cut_off(message: str) -> bool:
    """Whether ``OOM when allocating tensor with shape`` ends before the shape."""
    return _NO_SHAPE.search(message) is not None


def oom_without_dump(message: str) -> OomDraft | None:
    """A failure that has no dump: a context, XLA, the async allocator, a copy to the device; else None."""
    if any(text in message for text in _CONTEXT):
        ordinal = _ORDINAL.search(message)
        return OomDraft(Oom(device=f"GPU:{ordinal[1]}" if ordinal else None, verdict="memory.context-failed"))
    if match := _ASYNC.search(message):
        device = device_of_allocator(match[1])
        return OomDraft(Oom(allocator=match[1], device=device, requested_bytes=int(match[2])), exact=True)
    if match := _XLA.search(message):
        requested = size_bytes(f"{match[1].replace(',', '')} {match[2]}")
        device = f"GPU:{match[4]}" if match[4] else None
        oom = Oom(allocator=match[3], device=device, requested_bytes=requested)
        return OomDraft(oom, exact=match[2] in ("bytes", "B"))
    if match := _BYTES_REQUEST.search(message):
        return OomDraft(Oom(requested_bytes=int(match[1]), device=f"GPU:{match[2]}"), exact=True)
    if "Dst tensor is not initialized" in message:
        copy = _COPY.search(message)
        return OomDraft(Oom(device=device_name(copy[1]) if copy else None))
    if "failed to query event: CUDA_ERROR_OUT_OF_MEMORY" in message or names_oom_without_dump(message):
        return OomDraft()
    return None


def names_oom_without_dump(message: str) -> bool:
    """Whether a copy, or a transfer between devices, ran out of memory."""
    return any(text in message for text in _WITHOUT_DUMP)


def requested_bytes(line: str) -> int | None:
    """Bytes that a line about memory that ran out names, by its tensor's shape or rounded up; None without them."""
    if (match := _TENSOR.search(line)) is not None:
        return tensor_bytes(match[1], match[2])
    head = parse_dump_head(line)
    return head.requested_bytes if head is not None else None


def may_be_same_bytes(named: int | None, requested: int | None) -> bool:
    """Whether a size of three digits may be that of a request."""
    return named is None or requested is None or abs(named - requested) <= max(ALIGNMENT_BYTES, requested // 100)


def same_request(line: str, requested: int | None) -> bool:
    """Whether a line may be about a request of this size."""
    return may_be_same_bytes(requested_bytes(line), requested)


def refused_bytes(message: str) -> int | None:
    """Bytes of ``failed to allocate … from device``, which by itself is not a failure."""
    match = _REFUSED.search(message)
    return int(match[2]) if match else None


def device_of_allocator(allocator: str | None) -> str | None:
    """``GPU:0`` of ``GPU_0_bfc``; None for the name of no device."""
    match = _ALLOCATOR_DEVICE.match(allocator or "")
    if match is None or not (match[1] or match[2]):
        return "CPU:0" if allocator in ("cpu", "mklcpu") else None
    return f"GPU:{match[1] or match[2]}"
