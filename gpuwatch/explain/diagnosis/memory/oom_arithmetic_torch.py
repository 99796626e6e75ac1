"""PyTorch's out-of-memory failures: its message has the device's numbers but no limit.

It reports how much reserved memory is not handed out, but not the size of free blocks: fragmentation is likely at best
(notes "CUDA semantics", PYTORCH_CUDA_ALLOC_CONF).
"""

from __future__ import annotations

from gpuwatch.core.formatting.units import memory, size
from gpuwatch.core.model.run import Oom

_MOST_OF_DEVICE_SHARE = 0.5
_LITTLE_SHARE = 0.2
"""Share of the device: a process, or others, that hold less are not why the device is full."""
_FULL_FREE_BYTES = 20 << 20
"""A device with less free is full, whatever the request: the driver keeps a few MiB back, and refuses 2 of 6."""
_NOTABLE_UNALLOCATED_SHARE = 0.1
"""Share of what the process may use: less than this is unallocated in any process, and is not why a request fails."""
_SMALL_BUFFER_BYTES = 2 << 20
"""PyTorch's request to the driver for tensors of up to 1 MiB (``kSmallBuffer`` in ``CUDACachingAllocator.cpp``), which
have a separate pool: blocks of larger tensors are no room for them. Tensors are rounded up in ``torch_snapshot.py``."""

_NEARLY_ALL_SHARE = 0.9
"""Share of a device: a limit that allows this much is not the reason for a failure."""
_SMALLER = "Make the batch, the sequence or the model smaller (gradient checkpointing, accumulation, bfloat16)"
_WHO_ELSE = (
    "See in nvidia-smi who holds the {} beside this process: if another program does, end it or use another GPU"
    " (CUDA_VISIBLE_DEVICES). Else {}."
)


def judge_torch(oom: Oom) -> tuple[str, str, bool, str] | None:
    """Cause, evidence, certainty and action ("" for the cause's own); None if the message is insufficient."""
    asked, total, free = oom.requested_bytes, oom.device_total_bytes, oom.device_free_bytes
    if asked is None or total is None:
        return None
    own, spare, allowed = oom.process_bytes or 0, oom.unallocated_bytes, oom.limit_bytes
    if asked > total:
        return "memory.request-too-large", f"{size(asked)} > {size(total)}, the whole device", True, ""
    # A fraction limits what PyTorch reserves; its context and other libraries do not count.
    reserved = oom.in_use_bytes + spare if oom.in_use_bytes is not None and spare is not None else own
    if allowed is not None and reserved + asked > allowed:
        why = f"{size(asked)} + {size(reserved)} of this process > {size(allowed)} allowed to it"
        kept = f"the limit withholds only {size(total - allowed)} of the device, so raising it helps little."
        return (
            "memory.limit-too-small",
            why,
            True,
            f"{_SMALLER}: {kept}" if allowed >= _NEARLY_ALL_SHARE * total else "",
        )
    room = free is not None and free >= max(asked, _FULL_FREE_BYTES)
    if allowed is not None and allowed < total and room:
        why = f"{size(asked)} refused with {size(free)} free on the device: this process is allowed {size(allowed)}"
        return "memory.limit-too-small", why, False, ""
    if oom.process_bytes is None and not oom.others and not room:
        return None  # the message is cut off: what this process held is not known
    if free is not None and not room and (small := _others_hold_most(oom, own, free, total)) is not None:
        return small
    if oom.in_use_bytes is not None and oom.in_use_bytes > total:  # as Windows and WSL allow
        why = f"{size(oom.in_use_bytes)} in use > {size(total)} of the device: the rest is in host memory"
        return "memory.model-too-large", why, False, ""
    notable = spare is not None and spare >= _NOTABLE_UNALLOCATED_SHARE * min(allowed or total, total)
    if spare is not None and notable and spare >= asked > _SMALL_BUFFER_BYTES and not room:
        why = f"{size(asked)} ≤ {size(spare)} reserved by PyTorch and unallocated, in blocks that are too small"
        return "memory.fragmented", why, False, ""
    shared = spare is not None and free is not None and spare + free >= asked > free and spare > free
    if spare is not None and free is not None and notable and shared and asked > _SMALL_BUFFER_BYTES:
        why = f"{size(asked)} ≤ {size(spare)} reserved by PyTorch and unallocated + {size(free)} free on the device"
        return "memory.fragmented", why, False, ""
    if free is None:
        return "memory.model-too-large", f"{size(asked)} asked, {size(own)} of {size(total)} in use", False, ""
    beyond = _need_against_free(asked, free, total)
    held = sum(holder.held_bytes for holder in oom.others)
    taken = held if held else max(total - free - own, 0)
    if own < _MOST_OF_DEVICE_SHARE * total and room and free > asked + asked // 100:  # the message rounds both
        return (
            "driver.bad-state",
            f"{beyond}, of which this process held {size(own)}: no other process explains it",
            False,
            "Restart the program, then the driver (reboot) if it keeps refusing memory that it reports as free;"
            " on Windows, enlarge the paging file, which must cover GPU memory too.",
        )
    if not room and (
        own + free < _MOST_OF_DEVICE_SHARE * total or (own < _MOST_OF_DEVICE_SHARE * total and held > own)
    ):
        return (
            "memory.other-process",
            f"{beyond}: others held {size(taken)}{_own_bytes(oom)}",
            held > 0 and oom.process_bytes is not None,
            _end_processes_advice(oom),
        )
    why = f"{beyond}: this process held {size(own)}"
    if oom.process_bytes is None or taken < _NOTABLE_UNALLOCATED_SHARE * total:
        return "memory.model-too-large", why, asked > free, ""
    why = f"{why}, and {size(taken)} were held by others or outside PyTorch"
    enough = taken >= max(asked - free, _LITTLE_SHARE * total)
    return "memory.model-too-large", why, False, _WHO_ELSE.format(size(taken), f"m{_SMALLER[1:]}") if enough else ""


def _others_hold_most(oom: Oom, own: int, free: int, total: int) -> tuple[str, str, bool, str] | None:
    """Others hold most of a full device, so that this process's few blocks do not matter."""
    asked = oom.requested_bytes or 0
    if own + max(free, asked) >= _LITTLE_SHARE * total:
        return None
    held = sum(holder.held_bytes for holder in oom.others)
    taken = held or total - free - own
    why = f"{_need_against_free(asked, free, total)}: others held {size(taken)}{_own_bytes(oom)}"
    return "memory.other-process", why, held > 0 and oom.process_bytes is not None, _end_processes_advice(oom)


def _own_bytes(oom: Oom) -> str:
    """What this process held; in a container it may be one of the others where the message does not say."""
    return "" if oom.process_bytes is None else f", this process {size(oom.process_bytes)}"


def _need_against_free(asked: int, free: int, total: int) -> str:
    return f"{size(asked)} {'>' if asked > free else '≤'} {size(free)} free on a device of {size(total)}"


def _end_processes_advice(oom: Oom) -> str:
    if not oom.others:
        return ""
    named = ", ".join(f"{holder.pid} ({memory(holder.held_bytes)})" for holder in oom.others)
    word = "process" if len(oom.others) == 1 else "processes"
    return f"Stop {word} {named} if it is not needed, or choose another GPU with CUDA_VISIBLE_DEVICES."
