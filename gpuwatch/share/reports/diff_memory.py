"""What grew between two snapshots or profiles of a program's memory: a leak is what grows at each step."""

from __future__ import annotations

from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.machine_diff import HolderChange, Side, Spread
from gpuwatch.share.reports.diff_sides import DiffSide
from gpuwatch.share.reports.report_elements import Table, clean

_MIN_BYTES = 1 << 20
_MIN_SHARE = 0.01
"""Share of the memory of both sides: smaller changes of a holder are ignored."""
_MAX_ROWS = 200
_ROWS_SHOWN = 25
NAMES = {"alive_bytes": "in use when taken", "peak_bytes": "in use at the peak", "pool_bytes": "taken from the driver"}


def memory_side(document: Explanation, name: str) -> DiffSide:
    """One side: the memory of each device, and its holders."""
    end_times = [profile.ended_at for profile in document.memory_profiles if profile.ended_at is not None]
    at = max(end_times, default=None)
    side = DiffSide(Side(name=name, kind=document.kind, host=None, begin=at, end=at, samples=1), simulated=False)
    for profile in document.memory_profiles:
        device = clean(profile.device)
        numbers: dict[str, int | None] = {
            "alive_bytes": profile.ending_bytes,
            "peak_bytes": profile.peak_bytes if profile.has_history else None,
            "pool_bytes": sum(segment.reserved_bytes for segment in profile.segments) or None,
        }
        for metric, amount in numbers.items():
            if amount is not None:
                side.numbers[device, metric] = Spread(median=amount, low=amount, high=amount, points=1)
        for holder in profile.ending or profile.holders:
            name = holder.variable or holder.op
            # Memory without a stack or a name may be weights in one recording and caches in the other.
            group = "weights and caches" if holder.group == "weights" and not (holder.source or name) else holder.group
            key = device, group, holder.source, holder.layer, name
            count, sides_text = side.holders.get(key, (0, 0))
            side.holders[key] = count + holder.count, sides_text + holder.allocated_bytes
    return side


def holder_changes(first: DiffSide, second: DiffSide) -> list[HolderChange]:
    """The holders that differ, what grew most first."""
    min_change = max(_MIN_SHARE * max(_total(first), _total(second)), min(_MIN_BYTES, _total(second) / 20))
    side = []
    for key in second.holders | first.holders:
        device, group, source, layer, op = key
        counts, sides_text = zip(*(side.holders.get(key, (0, 0)) for side in (first, second)), strict=True)
        if abs(sides_text[1] - sides_text[0]) >= min_change:
            change = HolderChange(
                device=device, group=group, source=source, layer=layer, op=op, counts=counts, held_bytes=sides_text
            )
            side.append(change)
    side.sort(key=lambda change: change.held_bytes[0] - change.held_bytes[1])
    return side[:_MAX_ROWS]


def _total(side: DiffSide) -> int:
    return sum(sides_text for _, sides_text in side.holders.values())


def holder_table(changes: tuple[HolderChange, ...], names: tuple[str, str]) -> Table:
    """The changes, with the growth of each; ``names``: what the sides are called."""
    several_devices = len({change.device for change in changes}) > 1
    rows = []
    for change in changes[:_ROWS_SHOWN]:
        growth = change.held_bytes[1] - change.held_bytes[0]
        sides = zip(change.held_bytes, change.counts, strict=True)
        sides_text = (f"{size(amount)} ×{count}" if count else "–" for amount, count in sides)
        holder_text = clean(_holder_text(change, several_devices=several_devices))
        rows.append(
            (f"{'+' if growth >= 0 else '-'}{size(abs(growth))}", *sides_text, clean(change.group), holder_text)
        )
    heads = ("Change", *names)
    return Table("What grew", (*heads, "Group", "Holder"), tuple(rows), heads, below="Holder")


def largest_growth_text(changes: tuple[HolderChange, ...]) -> str:
    """``train.py:9 in step grew most, by 16.0 MiB.``; empty if nothing that is named grew."""
    for change in changes:
        growth = change.held_bytes[1] - change.held_bytes[0]
        if growth > 0:
            holder = _holder_text(change, several_devices=False) or change.group
            return f"{clean(holder)} grew the most, by {size(growth)}."
    return ""


def _holder_text(change: HolderChange, *, several_devices: bool) -> str:
    line = f"{change.source} ({change.op})" if change.source and change.op else change.source or change.op
    layer_text = f", through {change.layer}" if change.source and change.layer else ""
    return f"{line}{layer_text}" + (f" on {change.device}" if several_devices else "")
