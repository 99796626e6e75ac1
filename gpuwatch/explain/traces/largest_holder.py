"""One sentence: who held the most of an allocator's memory at its peak."""

from __future__ import annotations

import msgspec

from gpuwatch.core.formatting.units import size
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.memory_profile import AllocationGroup, MemoryProfile
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.traces.tensorflow_op_names import strip_calls

_MIN_OTHER_MOMENT_RATIO = 1.1
"""Where the program's peak is larger by this factor, another moment was recorded."""
_MIN_NAMED_SHARE = 0.01
"""Of a group: a line that holds less of it explains nothing."""
_GROUP_WORDS = {
    "weights": "the weights",
    "executables": "compiled programs",
    "optimizer state": "the optimizer's state",
    "other variables": "variables",
    "created": "tensors created outside modules",
}
"""Groups that a sentence calls otherwise than a table."""


def describe_largest_holder(profile: MemoryProfile) -> str:
    """``At the peak of 21.4 MiB on GPU:0, activations held the most: 12.1 MiB (57 %), 8.0 MiB of it by conv2d/Conv2D``.

    Without a known group the largest holder is named; without any of both, what is not known.
    """
    where = "in host memory" if profile.device == "host" else f"on {profile.device}"
    peak = f"At the recorded peak of {size(profile.peak_bytes)} {where}"
    if (profile.program_peak_bytes or 0) > _MIN_OTHER_MOMENT_RATIO * profile.peak_bytes:
        peak += f" (the program's own of {size(profile.program_peak_bytes or 0)} was not recorded)"
    if not profile.has_history:
        peak = f"In use {where} when the snapshot was taken: {size(profile.peak_bytes)} (it has no history)"
    known = {name: held for name, held in profile.groups.items() if name != "unattributed"}
    group = max(known, key=lambda name: known[name], default="")
    group_words = _GROUP_WORDS.get(group, group)
    largest = _largest(profile, group)
    named = _largest(profile)
    of_rest = f"; of the rest, the largest holder was {_holder_text(named, profile)}" if named is not None else ""
    if group and known[group] >= profile.peak_bytes - sum(known.values()):
        text = f"{peak}, {group_words} held the most: {_amount_text(known[group], profile)}"
        if largest is None or largest[1] < _MIN_NAMED_SHARE * known[group]:
            return text + of_rest
        alone = largest[1] >= 0.95 * known[group]
        return f"{text}, {'' if alone else f'{size(largest[1])} of it '}by {largest[0]}"
    nameless = profile.peak_bytes - profile.named_bytes
    what = "op" if profile.tool == "tensorflow" else "line"
    if profile.before_bytes > (named[1] if named is not None else 0):
        text = f"{peak}, {_amount_text(profile.before_bytes, profile)} were in use before the recording began"
        of_group = (
            f"; of the rest, {group_words} held the most: {_amount_text(known[group], profile)}" if group else of_rest
        )
        return text + of_group
    if named is None:
        most = next(iter(profile.holders), None)
        many = f"; the largest: {_count_text(most)}" if most is not None else ""
        return f"{peak}, none of it has a known {what}{many}"
    if nameless > named[1]:
        return f"{peak}, {_amount_text(nameless, profile)} have no known {what}{of_rest}"
    return f"{peak}, the largest holder was {_holder_text(named, profile)}"


def _largest(profile: MemoryProfile, group: str = "") -> tuple[str, int] | None:
    """The largest holder that has a name, of a group if one is given; of PyTorch all of one line together."""
    named = [
        holder
        for holder in profile.holders
        if (holder.group == group or not group) and (holder.variable or holder.source or holder.op)
    ]
    if profile.tool == "tensorflow":
        return (holder_name(named[0], profile.tool), named[0].allocated_bytes) if named else None
    lines = group_by((op for op in named if op.source), lambda op: op.source)
    if not lines:
        return None
    alike = max(lines.values(), key=lambda alike_ops: sum(op.allocated_bytes for op in alike_ops))
    count = sum(op.count for op in alike)
    whole = msgspec.structs.replace(alike[0], count=count, op=alike[0].op if len({op.op for op in alike}) == 1 else "")
    layers = group_by((op for op in alike if op.layer), lambda op: op.layer)
    held = {layer: sum(op.allocated_bytes for op in alike_ops) for layer, alike_ops in layers.items()}
    largest = max(held, key=lambda name: held[name], default="")
    through = printable(f", {size(held[largest])} through {largest}") if largest else ""
    return holder_name(whole, profile.tool) + through, sum(op.allocated_bytes for op in alike)


def _holder_text(holder: tuple[str, int], profile: MemoryProfile) -> str:
    return f"{holder[0]}: {_amount_text(holder[1], profile)}"


def _amount_text(held: int, profile: MemoryProfile) -> str:
    return size(held) + (f" ({100 * held / profile.peak_bytes:.0f} %)" if profile.peak_bytes else "")


def _count_text(holder: AllocationGroup) -> str:
    count = f"{holder.count} allocations" if holder.count > 1 else "an allocation"
    return f"{count} of {size(holder.requested_bytes // max(holder.count, 1))}"


def holder_name(holder: AllocationGroup, tool: str) -> str:
    """``Conv2D [64,112,112,64] of conv1``: a variable, a line of the program with its op, or an op."""
    count = f" ×{holder.count}" if holder.count > 1 else ""
    shape = f" {holder.shape}" if holder.shape else ""
    name = holder.variable or strip_calls(holder.op) or holder.source
    if tool != "tensorflow" and holder.source:
        name = f"{holder.source} ({holder.op})" if holder.op else holder.source
    return printable(f"{name}{shape}{count}")
