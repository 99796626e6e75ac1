"""Tables and charts of memory profiles: who held an allocator's memory at its peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuwatch.core.formatting.durations import measured_seconds
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import UNKNOWN, percent, size
from gpuwatch.core.model.memory_profile import AllocationGroup, MemoryProfile
from gpuwatch.explain.traces.largest_holder import describe_largest_holder
from gpuwatch.explain.traces.tensorflow_op_names import strip_calls
from gpuwatch.share.reports.report_elements import (
    BarChart,
    BarPart,
    BarRow,
    MemoryAreas,
    PartKind,
    Table,
    heads_and_rows,
)
from gpuwatch.share.reports.report_text import clean

_PEAK_TITLES = ("Memory at the peak", "Largest holders at the peak", "More holders at the peak")
_SNAPSHOT_TITLES = ("Memory alive at the snapshot", "Largest holders at the snapshot", "More holders")
_FIRST_HOLDERS = 12
MEMORY_GROUPS: dict[str, tuple[PartKind, str]] = {
    "weights": ("weights", "parameters of the model"),
    "weights and caches": ("kept", "in use since before the recording began: parameters, buffers, caches"),
    "caches": ("kept", "keys and values kept between steps"),
    "arrays": ("weights", "arrays that the program keeps"),
    "executables": ("kept", "compiled programs, which the device holds too"),
    "optimizer state": ("optimizer", "what the optimizer keeps, such as momentum"),
    "other variables": ("variables", "variables that do not belong to Keras, and Keras variables that are not trained"),
    "inputs": ("inputs", "data copied to the GPU that has the shape of an input"),
    "created": ("inputs", "tensors that the program creates outside modules, such as torch.zeros"),
    "activations": ("activations", "results of the layers' forward ops"),
    "gradients": ("gradients", "results of the backward pass"),
    "workspace": (
        "workspace",
        "buffers of kernels, such as what cuBLAS keeps in each thread, and of the optimizer's update",
    ),
    "unattributed": ("unattributed", "recorded, but its name does not say what it was for"),
}
"""The groups of a memory profile, in the order in which they are stacked, what lives long at the bottom: how each is
drawn, and what it is."""
_OTHER_GROUP: tuple[PartKind, str] = ("unattributed", "")
_BEFORE_RECORDING = "in use of the allocator when the recording began: variables, the optimizer's state, kept results"
_MIN_SHARE = 0.0005
"""Share of the peak below which a holder or a group is not listed by itself."""
_MAX_FURTHER_PROFILES = 4
"""Profiles of other devices and processes that are shown after the first."""


def largest_holder_fact(profiles: Sequence[MemoryProfile]) -> Iterator[tuple[str, str]]:
    """The summary's line."""
    if profiles and (text := describe_largest_holder(profiles[0])):
        several_processes = len({profile.pid for profile in profiles}) > 1
        yield "held most", clean(f"{text}{f' (process {profiles[0].pid})' if several_processes else ''}.")


def memory_profile_tables(profiles: Sequence[MemoryProfile]) -> Iterator[Table]:
    """For each profile what was alive at its peak, by group and by holder."""
    several_processes = len({profile.pid for profile in profiles}) > 1
    for number, profile in enumerate(profiles[: 1 + _MAX_FURTHER_PROFILES]):
        process = f" of process {profile.pid}" if several_processes and profile.pid is not None else ""
        of_device = f", {clean(profile.device)}{process}" if number else ""
        peak, largest, more = _PEAK_TITLES if profile.has_history else _SNAPSHOT_TITLES
        yield _peak_table(f"{peak}{of_device}", profile)
        large = [holder for holder in profile.holders if holder.allocated_bytes >= _MIN_SHARE * profile.peak_bytes]
        if large:
            yield _holder_table(f"{largest}{of_device}", profile, large[:_FIRST_HOLDERS], folded=number > 0)
        if large[_FIRST_HOLDERS:]:
            yield _holder_table(f"{more}{of_device}", profile, large[_FIRST_HOLDERS:], folded=True)
        if profile.segments:
            yield _segment_table(f"Segments at the snapshot{of_device}", profile)


def _segment_table(title: str, profile: MemoryProfile) -> Table:
    heads, rows = heads_and_rows(
        {
            "Segments": f"{segment.kind}, private pool {segment.pool}" if segment.pool else clean(segment.kind),
            "Stream": str(segment.stream),
            "Count": str(segment.count),
            "From the driver": size(segment.reserved_bytes),
            "In use": size(segment.allocated_bytes),
            "Free": size(segment.reserved_bytes - segment.allocated_bytes),
            "Largest free block": size(segment.largest_free_bytes) if segment.largest_free_bytes else "–",
        }
        for segment in profile.segments[:_FIRST_HOLDERS]
    )
    return Table(title, heads, rows, right=heads[1:], folded=profile.has_history)


def _peak_table(title: str, profile: MemoryProfile) -> Table:
    large, small, missing = _split_groups(profile)
    group_rows = [(clean(name), amount, MEMORY_GROUPS.get(name, _OTHER_GROUP)[1]) for name, amount in large.items()]
    if small:
        group_rows.append(("others", sum(small.values()), ", ".join(map(clean, small))))
    if missing and profile.before_bytes:
        group_rows.append(("before", missing, _BEFORE_RECORDING))
    elif missing:
        group_rows.append(("not recorded", missing, "allocated outside the recording"))
    return Table(
        title,
        ("Group", "Held", "Share", "What"),
        tuple((name, size(amount), _share(amount, profile), meaning) for name, amount, meaning in group_rows),
        ("Held", "Share"),
        note=" ".join(_notes(profile)),
        keep=("Group",),
        charts=tuple(_charts(profile)),
    )


def _split_groups(profile: MemoryProfile) -> tuple[dict[str, int], dict[str, int], int]:
    """Bytes of the groups that are listed by themselves, of the others, and of no group (0 if they are few)."""
    least = _MIN_SHARE * profile.peak_bytes
    large = {name: held for name, held in profile.groups.items() if held >= least}
    small = {name: held for name, held in profile.groups.items() if held < least}
    missing = profile.peak_bytes - profile.live_bytes
    return large, small, missing if missing > least else 0


def _notes(profile: MemoryProfile) -> Iterator[str]:
    limit = f" of {size(profile.limit_bytes)} that it may take" if profile.limit_bytes else ""
    in_use = f"{size(profile.peak_bytes)} in use of the allocator {clean(profile.allocator)}{limit}"
    if profile.has_history:
        when = f", {measured_seconds(profile.peak_seconds)} after the recording began" if profile.timed else ""
        yield f"Peak: {in_use}{when}."
    else:
        yield f"The snapshot has no history, so no peak is known. When it was taken: {in_use}."
    program_peak = profile.program_peak_bytes
    if program_peak is not None and program_peak > 1.02 * profile.peak_bytes:
        yield f"The program's own peak was {size(program_peak)}, outside the recording."
    if profile.failed_bytes is not None:
        line = f", of {clean(profile.failed_source)}," if profile.failed_source else ""
        yield f"A request for {size(profile.failed_bytes)}{line} was refused."
    named_share, shaped_share = (_share(held, profile) for held in (profile.named_bytes, profile.shaped_bytes))
    if profile.tool != "tensorflow" and profile.holders:
        yield f"{named_share} of it belongs to a line of the program."
    elif profile.tool == "tensorflow":
        yield f"{named_share} of it belongs to a named op, {shaped_share} also has a shape."
    rounding = profile.live_bytes - profile.requested_bytes
    if profile.live_bytes and rounding > 0:
        rounding_share = percent(100 * rounding / profile.live_bytes)
        yield f"The program requested {size(profile.requested_bytes)}: {rounding_share} is allocator rounding."
    if profile.fragmentation is not None:
        share = percent(100 * profile.fragmentation)
        yield f"Fragmentation: {share} of the free memory was outside its largest block."
    if profile.has_history:
        windows = count_text(profile.windows, "window")
        span = f", {measured_seconds(profile.recorded_seconds)}" if profile.timed else ""
        yield f"Recorded: {windows}{span}, {profile.events:,} allocations and frees."
    yield from (f"{note[:1].upper()}{note[1:]}." for note in map(clean, profile.notes))


def _charts(profile: MemoryProfile) -> Iterator[MemoryAreas | BarChart]:
    if len(profile.moments) > 1:
        yield MemoryAreas(f"Memory in use by group, {clean(profile.device)}", profile)
    if len(profile.moments) > 1 and profile.lines:
        yield MemoryAreas(f"Memory in use by line, {clean(profile.device)}", profile, "line")
    if profile.groups and profile.peak_bytes:
        large, _, missing = _split_groups(profile)
        kinds = {name: MEMORY_GROUPS.get(name, _OTHER_GROUP)[0] for name in large}
        parts = [BarPart(kinds[name], name, held, size(held)) for name, held in large.items()]
        if missing:
            name = "before the recording" if profile.before_bytes else "not recorded"
            parts.append(BarPart("free", name, missing, size(missing)))
        row = BarRow(clean(profile.device), tuple(parts), size(profile.peak_bytes))
        yield BarChart("At the peak, by group", (row,), float(profile.peak_bytes), "from 0 to the peak")


def _holder_table(
    title: str, profile: MemoryProfile, holders: Sequence[AllocationGroup], *, folded: bool = False
) -> Table:
    torch = profile.tool != "tensorflow"
    is_inferred = any(holder.shape_from in ("variable", "input") for holder in holders)
    return Table(
        title,
        *heads_and_rows(_holder_row(holder, profile, torch=torch) for holder in holders),
        right=("Held", "Share", "Each", "Asked", "Count"),
        note="* shape inferred from the size of a variable or input." if is_inferred else "",
        keep=("Group",),
        below="Line" if torch else "Op or variable",
        optional=("Each", "Asked", "Count"),
        sortable=True,
        folded=folded,
    )


def _holder_row(holder: AllocationGroup, profile: MemoryProfile, *, torch: bool) -> dict[str, str]:
    shape = " ".join(clean(part) for part in (holder.dtype, holder.shape) if part) if holder.shape else UNKNOWN
    name = strip_calls(holder.op)
    if holder.variable:
        # An initializer is named after its variable.
        name = f"{holder.variable}, from {name}" if name and holder.variable not in name else holder.variable
    if holder.source and name:
        name += f" ({holder.source})"
    is_inferred = "*" if holder.shape_from in ("variable", "input") else ""
    line = f"{holder.source}, through {holder.layer}" if torch and holder.layer else holder.source
    held, share = size(holder.allocated_bytes), _share(holder.allocated_bytes, profile)
    count, group = str(holder.count), clean(holder.group)
    if torch:
        each = size(holder.requested_bytes // max(holder.count, 1))
        cells = {"Held": held, "Share": share, "Each": each, "Count": count, "Group": group}
        return cells | {"Op": clean(holder.op), "Line": clean(line)}
    cells = {"Held": held, "Share": share, "Asked": size(holder.requested_bytes), "Count": count, "Group": group}
    return cells | {"Shape": shape + is_inferred, "Op or variable": clean(name)}


def _share(held: int, profile: MemoryProfile) -> str:
    return percent(100 * held / profile.peak_bytes) if profile.peak_bytes else UNKNOWN
