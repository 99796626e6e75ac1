"""PyTorch's out-of-memory failures: its message tells the device's numbers, and no limit.

Whether its free blocks are too small is never told, only how much of what it reserved is not handed out:
fragmentation is likely at best (notes "CUDA semantics", PYTORCH_CUDA_ALLOC_CONF).
"""

from __future__ import annotations

from gpuwatch.formatting.units import size
from gpuwatch.model.run import Oom

_MOSTLY = 0.5
_SEGMENT = 20 << 20
"""What PyTorch asks of the driver for a smaller request (kLargeBuffer): with that free, blocks are not the cause."""

FRAGMENTED = (
    "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the program starts (before PyTorch 2.1:"
    " max_split_size_mb:128), and keep the shapes of batches constant."
)


def judge_torch(oom: Oom) -> tuple[str, str, bool, str] | None:
    """Cause, why, whether that is certain, and what to do ("" where the cause's own advice is right).

    None where the message does not tell enough.
    """
    asked, total, free = oom.requested_bytes, oom.device_total_bytes, oom.device_free_bytes
    if asked is None or total is None:
        return None
    own, spare, allowed = oom.process_bytes or 0, oom.unallocated_bytes, oom.limit_bytes
    if asked > total:
        return "memory.request-too-large", f"{size(asked)} > {size(total)}, all that the device has", True, ""
    room = free is not None and free >= max(asked, _SEGMENT)
    if spare is not None and spare >= asked and not room:
        why = f"{size(asked)} ≤ {size(spare)} reserved by PyTorch and unallocated, in blocks that are too small"
        return "memory.fragmented", why, False, FRAGMENTED
    if spare is not None and free is not None and spare + free >= asked > free and spare > free:
        why = f"{size(asked)} ≤ {size(spare)} reserved by PyTorch and unallocated + {size(free)} free on the device"
        return "memory.fragmented", why, False, FRAGMENTED
    if allowed is not None and own + asked > allowed:
        why = f"{size(asked)} + {size(own)} of this process > {size(allowed)} allowed to it"
        return "memory.limit-too-small", why, True, ""
    if free is None:
        return "memory.model-too-large", f"{size(asked)} asked, {size(own)} of {size(total)} in use", False, ""
    beyond = f"{size(asked)} {'>' if asked > free else '≤'} {size(free)} free on a device of {size(total)}"
    held = sum(holder.held_bytes for holder in oom.others)
    taken = held if held else max(total - free - own, 0)
    if own + free < _MOSTLY * total or (own < _MOSTLY * total and (free >= asked or held > own)):
        return (
            "memory.other-process",
            f"{beyond}: others held {size(taken)}, this process {size(own)}",
            held > 0,
            _stop(oom),
        )
    return "memory.model-too-large", f"{beyond}: this process held {size(own)}", asked > free, ""


def _stop(oom: Oom) -> str:
    if not oom.others:
        return ""
    named = ", ".join(f"{holder.pid} ({size(holder.held_bytes)})" for holder in oom.others)
    word = "process" if len(oom.others) == 1 else "processes"
    return f"Stop {word} {named} if nobody needs it, or choose another GPU with CUDA_VISIBLE_DEVICES."
