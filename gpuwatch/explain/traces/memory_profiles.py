"""Builds memory profiles from TensorFlow's profiler files and PyTorch's allocator snapshots."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.memory_profile import AllocationGroup, MemoryMoment, MemoryProfile
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.explain.traces import tensorflow_xplane, torch_snapshot
from gpuwatch.explain.traces.allocation_replay import Allocation, Replay, Window
from gpuwatch.explain.traces.tensorflow_allocation_purposes import AllocationPurposes, Purpose
from gpuwatch.explain.traces.tensorflow_op_names import in_xla_cluster, name_scope, strip_calls

MAX_HOLDERS = 200
_MAX_NAMED_SHARE = 0.95
_MIN_MICROSECONDS, _MAX_MICROSECONDS = 1_000_000_000_000_000, 1 << 52
"""Plausible range of a time in microseconds since 1970."""
_NOISE_SHARE = 0.001
_MAX_LINES = 6
"""Lines of the program whose memory is shown over time."""
_PICOSECONDS_PER_SECOND = 1e12
_HOST_ALLOCATORS = ("cpu", "mklcpu", "pluggable_device_host_bfc", "gpu_host_bfc", "host")


def tensorflow_profiles(
    windows: Sequence[tuple[bytes, float, tuple[int, int] | None]],
    allocation_purposes: AllocationPurposes | None = None,
    *,
    pid: int | None = None,
    notes: Iterable[str] = (),
) -> list[MemoryProfile]:
    """The profiles of the allocators in TensorFlow's files, GPUs first.

    ``windows``: each file's content, when it began in seconds, and the steps counted at its start and end.
    :class:`~gpuwatch.explain.traces.InvalidTrace` if one is not a profile.
    """
    allocation_purposes = allocation_purposes or AllocationPurposes()
    by_allocator: dict[str, list[Window]] = {}
    left_out = 0
    for content, begin, steps in windows:
        profile = tensorflow_xplane.read(content)
        left_out += profile.left_out
        for allocator, events in profile.events.items():
            by_allocator.setdefault(allocator, []).append(Window(events, int(begin * _PICOSECONDS_PER_SECOND), steps))
    remarks = list(notes)
    if left_out:
        remarks.append(f"events not read, beyond the first {tensorflow_xplane.MAX_EVENTS:,} of a file: {left_out:,}")
    profiles = [
        _tensorflow_profile(name, recorded, allocation_purposes, pid, remarks)
        for name, recorded in by_allocator.items()
    ]
    profiles.sort(key=lambda profile: (profile.device == "host", -profile.peak_bytes))
    on_gpu = [profile for profile in profiles if profile.device != "host"]
    return on_gpu or profiles


def torch_profiles(content: bytes, *, pid: int | None = None, notes: Iterable[str] = ()) -> list[MemoryProfile]:
    """The profiles of the devices in a snapshot of PyTorch's allocator, the fullest first.

    Raises :class:`~gpuwatch.explain.traces.InvalidTrace`.
    """
    remarks = list(notes)
    profiles = [_torch_profile(device, pid, remarks) for device in torch_snapshot.read(content)]
    return sorted(profiles, key=lambda profile: -profile.peak_bytes)


def _torch_profile(device: torch_snapshot.DeviceHistory, pid: int | None, notes: list[str]) -> MemoryProfile:
    replay = Replay([Window(device.events)])
    live = replay.alive_at_peak
    groups, bytes_by_line = Counter[str](), Counter[str]()
    for allocation in live:
        holder = device.holders[allocation.event.op]
        groups[holder.group] += allocation.event.size
        if holder.line:
            bytes_by_line[holder.line] += allocation.event.size
    lines = tuple(line for line, _ in bytes_by_line.most_common(_MAX_LINES))
    holders, ending = _held_by_line(live, device), _held_by_line(replay.alive_at_end, device)
    notes = [*notes, *_torch_notes(live, device)]
    first, end = device.events[0].at, device.events[-1].at
    # The free blocks of a snapshot are those of its own moment.
    at_end = first + replay.peak_at == end and device.free_now > 0
    fragmentation = 1 - device.largest_free / device.free_now if at_end else None
    return MemoryProfile(
        tool="torch",
        device=f"cuda:{device.number}",
        allocator="pytorch",
        pid=pid,
        peak_bytes=replay.peak_event.in_use,
        peak_seconds=round(replay.peak_at / _PICOSECONDS_PER_SECOND, 6),
        pool_bytes=device.reserved_at(first + replay.peak_at) or None,
        live_bytes=sum(allocation.event.size for allocation in live),
        requested_bytes=sum(allocation.event.requested for allocation in live),
        named_bytes=bytes_by_line.total(),
        fragmentation=fragmentation,
        failed_bytes=device.refused_bytes,
        failed_source=device.refused_line,
        device_free_bytes=device.free_at_refusal,
        holders=tuple(holders[:MAX_HOLDERS]),
        more_bytes=sum(holder.allocated_bytes for holder in holders[MAX_HOLDERS:]),
        groups=dict(groups.most_common()),
        lines=lines,
        moments=tuple(_torch_moments(replay, device, lines)) if device.recorded else (),
        recorded_seconds=(end - first) / _PICOSECONDS_PER_SECOND,
        has_history=device.recorded,
        timed=device.history_began > 0,
        ending=tuple(ending[:MAX_HOLDERS]) if device.recorded else (),
        ending_bytes=sum(allocation.event.size for allocation in replay.alive_at_end),
        ended_at=_time_of(device, end),
        segments=tuple(sorted(device.segments.values(), key=lambda alike: -alike.reserved_bytes)),
        events=sum(event.frees or not device.holders[event.op].before for event in device.events),
        notes=tuple(notes),
    )


def _torch_moments(
    replay: Replay, device: torch_snapshot.DeviceHistory, lines: Sequence[str]
) -> Iterator[MemoryMoment]:
    before = sum(not event.frees and device.holders[event.op].before for event in device.events)
    wanted = frozenset(lines)  # each moment copies its sums

    def line_of(allocation: Allocation) -> str:
        line = device.holders[allocation.event.op].line
        return line if line in wanted else ""

    by_line = replay.moments(line_of, before)
    for moment, of in zip(
        replay.moments(lambda allocation: device.holders[allocation.event.op].group, before), by_line, strict=True
    ):
        yield MemoryMoment(
            t=round(moment.at / _PICOSECONDS_PER_SECOND, 6),
            in_use_bytes=moment.in_use,
            groups={name: held for name, held in moment.groups.items() if held > 0},
            lines=tuple(max(of.groups.get(line, 0), 0) for line in lines),
        )


def _time_of(device: torch_snapshot.DeviceHistory, at: int) -> datetime.datetime | None:
    if not _MIN_MICROSECONDS < device.history_began < _MAX_MICROSECONDS:
        return None
    span = min(at // 1_000_000, _MAX_MICROSECONDS)
    return utc_datetime((device.history_began + span) / 1e6)


def _held_by_line(live: list[Allocation], device: torch_snapshot.DeviceHistory) -> list[AllocationGroup]:
    purposes = {id(allocation): Purpose(group=device.holders[allocation.event.op].group) for allocation in live}
    return [
        msgspec.structs.replace(holder, op=known.op, layer=known.layer_line, source=known.line)
        for holder in _holders(live, purposes)
        if (known := device.holders[holder.op])
    ]


def _torch_notes(live: Sequence[Allocation], device: torch_snapshot.DeviceHistory) -> Iterator[str]:
    if not device.recorded:
        yield "the peak would be known if torch.cuda.memory._record_memory_history() had been called before the work"
        return
    total = sum(allocation.event.size for allocation in live)
    nameless = [
        (allocation.event.size, holder)
        for allocation in live
        if not (holder := device.holders[allocation.event.op]).line
    ]
    if any(holder.before for _, holder in nameless):
        yield (
            "what was allocated before the recording began has no stack: its group is inferred from its size and"
            " what frees it"
        )
    if sum(size for size, holder in nameless if not holder.before) > (1 - _MAX_NAMED_SHARE) * total:
        yield "what PyTorch allocates in its own threads, such as in the backward pass, has no line of the program"


def _tensorflow_profile(
    allocator: str, windows: list[Window], allocation_purposes: AllocationPurposes, pid: int | None, notes: list[str]
) -> MemoryProfile:
    replay = Replay(windows)
    live = replay.alive_at_peak
    allocation_purposes.end = replay.end
    purposes = allocation_purposes.purposes(live)
    groups: Counter[str] = Counter()
    for allocation in live:
        groups[purposes[id(allocation)].group] += allocation.event.size
    by_op: dict[tuple[str, str], Purpose] = {}

    def group_of(allocation: Allocation) -> str:
        purpose = purposes.get(id(allocation)) or by_op.get((allocation.event.op, allocation.event.region))
        if purpose is None:
            purpose = by_op[allocation.event.op, allocation.event.region] = allocation_purposes.purpose_by_name(
                allocation
            )
        return purpose.group

    moments = [
        MemoryMoment(
            t=round(moment.at / _PICOSECONDS_PER_SECOND, 6),
            in_use_bytes=moment.in_use,
            groups={name: held for name, held in moment.groups.items() if held > 0},
            step=_step_at(windows, moment.window, moment.at),
            window=moment.window,
        )
        for moment in replay.moments(group_of)
    ]
    event = replay.peak_event
    holders = [_with_line(holder, allocation_purposes) for holder in _holders(live, purposes)]
    host = allocator.startswith(_HOST_ALLOCATORS)
    if host:
        notes = [*notes, "this is host memory: the program used no GPU that TensorFlow recorded"]
    if any(in_xla_cluster(allocation.event.op) for allocation in live):
        notes = [*notes, "an XLA cluster is one buffer: its contents are not distinguished"]
    return MemoryProfile(
        tool="tensorflow",
        device="host" if host else _device_of_allocator(allocator),
        allocator=allocator,
        pid=pid,
        peak_bytes=event.in_use,
        peak_seconds=round(replay.peak_at / _PICOSECONDS_PER_SECOND, 6),
        program_peak_bytes=max(window.events[-1].peak for window in windows) or None,
        limit_bytes=event.in_use + event.available if event.available else None,
        before_bytes=replay.bytes_before if replay.bytes_before > _NOISE_SHARE * event.in_use else 0,
        live_bytes=sum(allocation.event.size for allocation in live),
        requested_bytes=sum(allocation.event.requested for allocation in live),
        named_bytes=sum(allocation.event.size for allocation in live if allocation.event.op),
        shaped_bytes=sum(
            allocation.event.size for allocation in live if allocation.event.shape or purposes[id(allocation)].shape
        ),
        fragmentation=event.fragmentation if 0 <= event.fragmentation <= 1 else None,
        holders=tuple(holders[:MAX_HOLDERS]),
        more_bytes=sum(holder.allocated_bytes for holder in holders[MAX_HOLDERS:]),
        groups=dict(groups.most_common()),
        moments=tuple(moments),
        recorded_seconds=sum(w.events[-1].at - w.events[0].at for w in windows) / _PICOSECONDS_PER_SECOND,
        windows=len(windows),
        events=sum(len(window.events) for window in windows),
        notes=tuple(notes),
    )


def _with_line(holder: AllocationGroup, allocation_purposes: AllocationPurposes) -> AllocationGroup:
    name = strip_calls(holder.op)
    # An eager op is named after its type alone, as an op of a graph may be.
    line = allocation_purposes.lines.get(name, "") if "/" in name or name != holder.op else ""
    return msgspec.structs.replace(holder, source=line) if line else holder


def _holders(live: list[Allocation], purposes: dict[int, Purpose]) -> list[AllocationGroup]:
    """Alike allocations together, largest first."""

    def key_of(allocation: Allocation) -> tuple[object, ...]:
        purpose = purposes[id(allocation)]
        shape, dtype = allocation.event.shape or purpose.shape, allocation.event.dtype or purpose.dtype
        event = allocation.event
        return event.op, event.region, shape, dtype, purpose.variable, purpose.group, event.requested

    holders = []
    for alike in group_by(live, key_of).values():
        event, purpose = alike[0].event, purposes[id(alike[0])]
        holders.append(
            AllocationGroup(
                op=event.op,
                layer=name_scope(event.op),
                variable=purpose.variable,
                group=purpose.group,
                region=event.region,
                dtype=event.dtype or purpose.dtype or None,
                shape=event.shape or purpose.shape or None,
                shape_from="framework" if event.shape else purpose.shape_from,
                count=len(alike),
                allocated_bytes=sum(allocation.event.size for allocation in alike),
                requested_bytes=sum(allocation.event.requested for allocation in alike),
            )
        )
    holders.sort(key=lambda op: (-op.allocated_bytes, op.op))
    return holders


def _step_at(windows: Sequence[Window], number: int, at: int) -> int | None:
    """Steps before a moment, evenly spread over its window."""
    window = windows[number]
    if window.steps is None or window.steps[1] <= window.steps[0]:
        return window.steps[0] if window.steps is not None else None
    span = window.events[-1].at - window.events[0].at
    first, last = window.steps
    return first + int((last - first) * min(max(at - window.begin, 0) / span, 1)) if span else first


def _device_of_allocator(allocator: str) -> str:
    """``GPU:0`` of ``GPU_0_bfc`` and ``PluggableDevice_0_bfc``."""
    for part in allocator.split("_"):
        if part.isdigit():
            return f"GPU:{part}"
    return allocator
