"""From the numbers of an out-of-memory failure to its cause, with the arithmetic written out."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.formatting.units import size
from gpuwatch.model.run import Oom


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known of the device beside the allocator's own numbers."""

    total_bytes: int | None = None
    others_bytes: int | None = None
    """Memory that was in use on the device before the work began."""
    limited: bool = False
    """Whether the user set a limit or fraction."""
    refusals: int = 0
    """Allocations that the driver refused."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A cause id, and the lines that show why."""

    cause: str
    lines: tuple[str, ...]
    certain: bool


_SMALL_SHARE = 0.8
"""An allocator's default limit below this share of the device means that others held memory."""


def judge(oom: Oom, around: Surroundings) -> Judgement:
    """The cause of one failure. Request R, limit L, in use U, largest free block F."""
    asked, limit, used, block = (oom.requested_bytes, oom.limit_bytes, oom.in_use_bytes, oom.largest_free_bytes)
    lines = [_numbers(oom)]
    if oom.verdict is not None:
        if around.others_bytes:
            lines.append(f"in use on the device before the start: {size(around.others_bytes)}")
        return Judgement(oom.verdict, tuple(lines), certain=True)
    if asked is None or limit is None:
        if around.others_bytes and around.total_bytes and around.others_bytes > around.total_bytes / 2:
            lines.append(f"others held {size(around.others_bytes)} of {size(around.total_bytes)} before the start")
            return Judgement("memory.other-process", tuple(lines), certain=False)
        return Judgement("memory.model-too-large", tuple(lines), certain=False)
    free = limit - (used or 0)
    if asked <= free and block is not None and block < asked:
        if around.refusals and used is not None and used + block < limit / 2 and not around.limited:
            lines.append(f"the driver refused {around.refusals} allocations")
            return Judgement("memory.other-process", tuple(lines), certain=False)
        lines.append(f"{size(asked)} ≤ {size(free)} free in all, but > {size(block)} in the largest block")
        return Judgement("memory.fragmented", tuple(lines), certain=True)
    if asked <= free:
        lines.append(f"{size(asked)} ≤ {size(free)} below the limit: the driver had no more to give")
        return Judgement("memory.other-process", tuple(lines), certain=False)
    need = asked + (used or 0)
    if around.total_bytes is not None and need <= around.total_bytes:
        if around.limited:
            lines.append(f"{size(need)} needed > limit of {size(limit)}, on a device of {size(around.total_bytes)}")
            return Judgement("memory.limit-too-small", tuple(lines), certain=True)
        if limit < _SMALL_SHARE * around.total_bytes and need <= _SMALL_SHARE * around.total_bytes:
            lines.append(
                f"only {size(limit)} of {size(around.total_bytes)} were free at the start,"
                f" though {size(need)} would fit the device"
            )
            return Judgement("memory.other-process", tuple(lines), certain=False)
    if asked > limit:
        lines.append(f"{size(asked)} > limit of {size(limit)}: not even an empty allocator could hold it")
        return Judgement("memory.request-too-large", tuple(lines), certain=True)
    lines.append(f"{size(asked)} > {size(limit)} limit − {size(used)} in use = {size(free)} free")
    return Judgement("memory.model-too-large", tuple(lines), certain=True)


def _numbers(oom: Oom) -> str:
    parts = [f"asked {size(oom.requested_bytes)}"]
    if oom.device:
        parts.append(f"on {oom.device}")
    if oom.allocator:
        parts.append(f"from {oom.allocator}")
    text = " ".join(parts)
    known = [
        f"{name} {size(value)}"
        for name, value in (
            ("limit", oom.limit_bytes),
            ("in use", oom.in_use_bytes),
            ("largest free block", oom.largest_free_bytes),
        )
        if value is not None
    ]
    return f"{text}: {', '.join(known)}" if known else text
