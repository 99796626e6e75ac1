"""How frameworks and programs say that GPU memory ran out, and what their messages say of the request.

TensorFlow, JAX and XLA write many lines about one failure (the allocator's dump, OP_REQUIRES, rendezvous, Python's
error, "2 root error(s)"), which :mod:`gpuwatch.explain.logs.oom_collector` combines. PyTorch has everything in one
(c10/cuda/CUDACachingAllocator.cpp, 1.0 to today; ``capacty`` is its spelling in 2.1), and "free" there is the device's,
not the allocator's. Sources of the others: llama.cpp (ggml-cuda.cu), ComfyUI's and PyTorch's asynchronous allocator,
PyTorch's report of an allocation that failed (it then asks NVML who holds the memory), torch-directml,
text-generation-inference (warm-up), RAPIDS' memory manager (RMM), HAMi-core (allocator.c).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpuwatch.core.model.run import MemoryHolder, Oom, RunError
from gpuwatch.core.parsing import lazy
from gpuwatch.explain.logs.allocator_dump import ALIGNMENT_BYTES, OomDraft
from gpuwatch.explain.logs.device_names import device_name
from gpuwatch.explain.size_texts import size_bytes, tensor_bytes

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


def parse_dump_head(message: str) -> Oom | None:
    """The request of ``ran out of memory trying to allocate``, with which a dump begins; None for other messages."""
    if (match := _HEAD.search(message)) is None:
        return None
    requested = int(match[3]) if match[3] else size_bytes(match[2])
    return Oom(allocator=match[1], device=_device_of_allocator(match[1]), requested_bytes=requested)


def parse_tensor_request(message: str) -> Oom | None:
    """The request of ``OOM when allocating tensor with shape``; None for other messages, and where it is cut off."""
    if (match := _TENSOR.search(message)) is not None:
        named = device_name(match[3] or "")
        is_whole = _WHOLE_DEVICE.fullmatch(named) is not None and match[3][-1].isdigit()
        device = named if is_whole else _device_of_allocator(match[4])
        return Oom(allocator=match[4], device=device, requested_bytes=tensor_bytes(match[1], match[2]))
    if (match := _PROTO_SHAPE.search(message)) is not None:  # TensorFlow 0.x
        return Oom(requested_bytes=tensor_bytes(",".join(re.findall(r"\d+", match[0])), None))
    return None


def is_tensor_request_cut_off(message: str) -> bool:
    """Whether ``OOM when allocating tensor with shape`` ends before the shape."""
    return _NO_SHAPE.search(message) is not None


def parse_oom_without_dump(message: str) -> OomDraft | None:
    """A failure that has no dump: a context, XLA, the async allocator, a copy to the device, a library; else None."""
    if (draft := _parse_library_oom(message)) is not None:
        return draft
    if any(text in message for text in _CONTEXT):
        ordinal = _ORDINAL.search(message)
        return OomDraft(Oom(device=f"GPU:{ordinal[1]}" if ordinal else None, verdict="memory.context-failed"))
    if match := _ASYNC.search(message):
        device = _device_of_allocator(match[1])
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
    if "failed to query event: CUDA_ERROR_OUT_OF_MEMORY" in message or any(text in message for text in _WITHOUT_DUMP):
        return OomDraft()
    return None


def is_oom_without_dump(message: str) -> bool:
    """Whether a copy, a transfer between devices or another library ran out of memory."""
    return any(text in message for text in _WITHOUT_DUMP) or _parse_library_oom(message) is not None


def may_be_same_bytes(named: int | None, requested: int | None) -> bool:
    """Whether a size of three digits may be that of a request."""
    return named is None or requested is None or abs(named - requested) <= max(ALIGNMENT_BYTES, requested // 100)


def may_be_of_request(line: str, requested: int | None) -> bool:
    """Whether a line about memory that ran out may be about a request of this size, or names none."""
    if (match := _TENSOR.search(line)) is not None:
        return may_be_same_bytes(tensor_bytes(match[1], match[2]), requested)
    head = parse_dump_head(line)
    return head is None or may_be_same_bytes(head.requested_bytes, requested)


def refused_bytes(message: str) -> int | None:
    """Bytes of ``failed to allocate … from device``, which by itself is not a failure."""
    match = _REFUSED.search(message)
    return int(match[2]) if match else None


def _device_of_allocator(allocator: str | None) -> str | None:
    """``GPU:0`` of ``GPU_0_bfc``; None for the name of no device."""
    match = _ALLOCATOR_DEVICE.match(allocator or "")
    if match is None or not (match[1] or match[2]):
        return "CPU:0" if allocator in ("cpu", "mklcpu") else None
    return f"GPU:{match[1] or match[2]}"


_PYTORCH_OOM = lazy(
    r"(?:CUDA|HIP|XPU|MPS backend) (?i:out of memory)(?:[.,:;!]| \(|[\s\"')]*$)|CUDA (?:driver )?error: out of memory"
    r"|(?i:HIP error: out of memory)"
    r"|cuda runtime error \(2\) : out of memory"
    r"|Tried to allocate [\d.]{1,24} ?(?:[KMGT]i?B|bytes)(?:\. GPU \d| \(GPU \d)"
)
_SIZE = r"((?<![\d.])[\d.]{1,24} ?(?:[KMGT]i?B|bytes))"
_ASKED = lazy(rf"Tried to allocate {_SIZE}")
_PYTORCH_DEVICE = lazy(r"\(?GPU (\d+)")
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


def is_pytorch_oom(message: str) -> bool:
    """Whether this line is PyTorch's error; the exception's class name alone is not."""
    matches = (
        "ut of memory" in message or "f Memory" in message or "OF MEMORY" in message or "Tried to allocate" in message
    )  # the line may have been split
    return matches and _PYTORCH_OOM.search(message) is not None


def parse_pytorch_oom(message: str) -> Oom:
    """The failure that the message describes, with its numbers in bytes."""
    fraction = _FRACTION.search(message)
    used = _first_size(_ALLOCATED, message)
    unallocated = _first_size(_UNALLOCATED, message)
    reserved = _first_size(_RESERVED, message)
    if unallocated is None and reserved is not None and used is not None:
        unallocated = max(reserved - used, 0)
    own, total = _first_size(_OWN, message), _first_size(_TOTAL, message)
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
    device = _PYTORCH_DEVICE.search(message)
    return Oom(
        device=f"GPU:{device[1]}" if device else None,
        allocator="pytorch",
        requested_bytes=size_bytes(fraction[1]) if fraction else _first_size(_ASKED, message),
        limit_bytes=_first_size(_ALLOWED, message),
        in_use_bytes=used,
        device_total_bytes=total,
        device_free_bytes=_first_size(_FREE, message),
        process_bytes=own,
        unallocated_bytes=unallocated,
        others=tuple(others),
        verdict="memory.limit-too-small" if fraction else None,
    )


def _first_size(pattern: re.Pattern[str], message: str) -> int | None:
    match = pattern.search(message)
    if match is None:
        return None
    return size_bytes(next(group for group in match.groups() if group is not None))


class _OtherOom(NamedTuple):
    text: str
    """In each such message."""
    pattern: re.Pattern[str]
    """With the groups ``asked``, ``unit``, ``device`` and ``limit`` where the message names them."""
    program: str
    verdict: str | None = None


_OTHER_OOMS = (
    _OtherOom(
        "cudaMalloc failed: out of memory",
        re.compile(r"allocating (?P<asked>[\d.]{1,20}) (?P<unit>MiB) on device (?P<device>\d{1,3}):"),
        "llama.cpp",
    ),
    _OtherOom("Allocation on device", re.compile(r"Allocation on device(?: (?P<device>\d{1,3}) would| *$)"), "pytorch"),
    _OtherOom("INTERNAL ASSERT FAILED", re.compile(r"NVML_SUCCESS == .{1,200}\bCUDACachingAllocator\.cpp"), "pytorch"),
    _OtherOom(
        "not enough GPU video memory",
        re.compile(r"(?:allocate tensor with (?P<asked>\d{1,18}) (?P<unit>bytes)\. )?There is not enough GPU video"),
        "DirectML",
    ),
    _OtherOom("(failed to allocate ", re.compile(r"\(failed to allocate (?P<asked>\d{1,18}) (?P<unit>bytes)\)"), "RMM"),
    _OtherOom("DML allocator out of memory", re.compile("DML"), "DirectML"),
    _OtherOom(
        "prefill tokens",
        re.compile(r"Not enough memory to handle (?:\d{1,12} total tokens with )?\d{1,12} prefill tokens"),
        "text-generation-inference",
    ),
    _OtherOom(
        " OOM ",
        re.compile(r"Device (?P<device>\d{1,3}) OOM \d{1,20} / (?P<limit>\d{1,20})\b"),
        "HAMi",
        "memory.limit-too-small",
    ),
    _OtherOom("cuMemoryAllocate failed res=2", re.compile("cuMem"), "HAMi", "memory.limit-too-small"),
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


def parse_other_oom(message: str) -> Oom | None:
    """The failure with the numbers that the message names; None for other messages."""
    for wording in _OTHER_OOMS:
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


def _parse_library_oom(message: str) -> OomDraft | None:
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


def is_out_of_memory_error(error: RunError) -> bool:
    """Whether an exception reports that GPU memory ran out: by its class, or by any framework's message."""
    if "ResourceExhausted" in error.type or "OutOfMemory" in error.type:
        return True
    if is_pytorch_oom(error.message) or parse_tensor_request(error.message) is not None:
        return True
    draft = parse_oom_without_dump(error.message)
    return draft is not None and draft.oom.device != "CPU:0"
