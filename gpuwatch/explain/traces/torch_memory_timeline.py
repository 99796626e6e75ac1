"""PyTorch's memory timelines (``prof.export_memory_timeline("x.raw.json.gz")``): bytes by category over time.

A list of time in nanoseconds (-1 before the recording), action, signed bytes and category
(torch/profiler/_memory_profiler.py); no stacks.
"""

from __future__ import annotations

import re

import msgspec

from gpuwatch.core.model.memory_profile import Group, MemoryMoment, MemoryProfile
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.explain.traces import InvalidTrace

_MAX_MOMENTS = 300
_MAX_NUMBER = 1 << 62
_CATEGORIES: tuple[Group, ...] = (
    "weights", "optimizer state", "inputs", "workspace", "activations", "gradients", "workspace", "unattributed",
)  # fmt: skip
"""In the order of PyTorch's numbers; its "temporary" and "autograd detail" are workspace."""
_FIRST_ENTRY = re.compile(rb"\s*\[\s*\[\s*-?\d{1,19}\s*,\s*[1-4]\s*,\s*-?\d{1,19}\s*,\s*[0-7]\s*\]")


def is_timeline(start: bytes) -> bool:
    """Whether a file begins with an entry of a timeline."""
    return _FIRST_ENTRY.match(start) is not None


def profile(content: bytes) -> MemoryProfile:
    """The profile of a timeline. The file does not name its device."""
    try:
        entries = msgspec.json.decode(content, type=list[tuple[int, int, int, int]])
    except msgspec.DecodeError as error:
        raise InvalidTrace(str(error)) from None
    if any(not -_MAX_NUMBER < number < _MAX_NUMBER for entry in entries for number in entry):
        raise InvalidTrace("it has a number that is too large")
    begin = min((at for at, *_ in entries if at > 0), default=0)
    end = max((at for at, *_ in entries), default=0)
    held: dict[str, int] = {}
    groups: dict[str, int] = {}
    moments: list[MemoryMoment] = []
    in_use = peak = peak_at = 0
    entries_per_moment = max(-(-sum(at > 0 for at, *_ in entries) // _MAX_MOMENTS), 1)
    timed_entries = 0
    for number, (at, _, change, category) in enumerate(entries):
        group = _CATEGORIES[category] if 0 <= category < len(_CATEGORIES) else "unattributed"
        held[group] = held.get(group, 0) + change
        in_use += change
        # A tensor that gets another category is taken from one and given to the other: no moment lies between.
        if number + 1 < len(entries) and entries[number + 1][:2] == (at, 3) and change < 0:
            continue
        if in_use > peak:
            peak, peak_at, groups = in_use, at, dict(held)
        if at > 0:
            moment = MemoryMoment(
                t=round((at - begin) / 1e9, 6),
                in_use_bytes=max(in_use, 0),
                groups={name: amount for name, amount in held.items() if amount > 0},
            )
            if timed_entries % entries_per_moment == 0:
                moments.append(moment)
            elif in_use > moments[-1].in_use_bytes:
                moments[-1] = moment
            timed_entries += 1
    known = {name: amount for name, amount in groups.items() if amount > 0}
    return MemoryProfile(
        tool="torch",
        device="the recorded device",
        allocator="pytorch",
        peak_bytes=peak,
        peak_seconds=round(max(peak_at - begin, 0) / 1e9, 6),
        live_bytes=sum(known.values()),
        requested_bytes=sum(known.values()),
        groups=dict(sorted(known.items(), key=lambda item: -item[1])),
        moments=tuple(moments),
        recorded_seconds=(end - begin) / 1e9 if begin else 0.0,
        events=len(entries),
        ended_at=utc_datetime(end / 1e9) if end > 0 else None,
        notes=("a memory timeline has no stacks: torch.cuda.memory._dump_snapshot() records the lines",),
    )
