"""PyTorch's allocator snapshots (``torch.cuda.memory._dump_snapshot``): what was alive at the peak, by line.

A snapshot has the allocator's segments with their blocks, and the history of each device: allocations, frees, segments
and failures, with the Python stack of each (torch/cuda/memory.py). The history is a ring; what was alive before it
begins is found among the blocks, and among what it frees without having allocated it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gpuwatch.core.model.memory_profile import Group, MemorySegments
from gpuwatch.explain.traces import InvalidTrace
from gpuwatch.explain.traces.allocation_replay import AllocatorEvent
from gpuwatch.explain.traces.allocation_stacks import NO_STACK, Stack, StackReader
from gpuwatch.explain.traces.safe_pickle import load
from gpuwatch.explain.traces.torch_memory_groups import MemoryChange, assign_groups

MAX_ENTRIES = 2_000_000
"""Entries and blocks that are looked at; a file may name one of them many times."""
_MAX_DEVICES = 64
_BLOCK_BYTES = 512
"""PyTorch rounds requests up to this (``kMinBlockSize``); its requests to the driver: ``oom_verdict.py``."""
_PICOSECONDS_PER_MICROSECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Holder:
    """Line, op and group shared by a set of equal allocations."""

    line: str
    """The program's line, ``train.py:12 in forward``; empty if it is unknown."""
    layer_line: str
    """The line of the library's layer that the program called."""
    op: str
    group: Group
    before: bool
    """Allocated before the history began."""


@dataclass(slots=True)
class DeviceHistory:
    """History and state of the allocator of one device."""

    number: int
    events: list[AllocatorEvent] = field(default_factory=list)
    holders: dict[str, Holder] = field(default_factory=dict)
    """Details of allocations, by the op of their event."""
    recorded: bool = False
    """Whether it has a history, besides what is alive."""
    history_began: int = 0
    """When the history begins, in microseconds since 1970; 0 if it has no times (before PyTorch 2.1)."""
    reserved_now: int = 0
    """Bytes that the allocator has got from the driver, in use or not."""
    reserved_changes: list[tuple[int, int]] = field(default_factory=list)
    """Picoseconds, and by how many bytes the reserved memory grew."""
    segments: dict[tuple[str, str, int], MemorySegments] = field(default_factory=dict)
    """By kind, private pool and stream."""
    free_now: int = 0
    largest_free: int = 0
    refused_bytes: int | None = None
    """Bytes of the last request that was refused."""
    free_at_refusal: int | None = None
    """Free memory of the device at that moment."""
    refused_line: str = ""
    """The line of the program that made the request."""

    def add_holder(self, change: MemoryChange, stacks: StackReader) -> str:
        """Adds the holder of an allocation to :attr:`holders`, if it is new, and returns its key."""
        stack = change.stack
        line = stacks.shorten(stack.line)
        if not line and change.before_history and change.freed_by.line:
            line = f"{stacks.shorten(change.freed_by.line)}, which frees it"
        holder = Holder(line, stacks.shorten(stack.layer_line), stack.op, change.group, change.before_history)
        key = repr(holder)
        self.holders.setdefault(key, holder)
        return key

    def reserved_at(self, at: int) -> int:
        """Bytes that the allocator had got from the driver at a moment."""
        return self.reserved_now - sum(change for when, change in self.reserved_changes if when > at)


def read(data: bytes) -> list[DeviceHistory]:
    """The devices of a snapshot that hold or held memory; :class:`InvalidTrace` for anything else."""
    value = load(data)
    if isinstance(value, list) and any(isinstance(entry, dict) and "blocks" in entry for entry in value[:1]):
        value = {"segments": value, "device_traces": []}  # torch.cuda.memory_snapshot()
    if not (isinstance(value, dict) and isinstance(value.get("segments"), list) and "device_traces" in value):
        raise InvalidTrace("it is not a snapshot of PyTorch's allocator")
    reader = _Reader()
    found: dict[int, DeviceHistory] = {}
    blocks: dict[int, dict[int, MemoryChange]] = {}
    for segment in reader.each(value["segments"]):
        device = _device(segment, found)
        if device is None:
            continue
        device.reserved_now += _non_negative_int(segment.get("total_size"))
        at, in_use, largest = _non_negative_int(segment.get("address")), 0, 0
        for block in reader.each(segment.get("blocks")):
            size = _non_negative_int(block.get("size"))
            at = _non_negative_int(block.get("address")) or at  # older snapshots have only the sizes, one after another
            state = block.get("state")
            if state == "inactive":
                device.free_now += size
                largest = max(largest, size)
            elif size:
                in_use += size
                blocks.setdefault(device.number, {})[at] = _change_of_block(at, size, block, reader)
            at += size
        device.largest_free = max(device.largest_free, largest)
        _add_segment(device, segment, in_use, largest)
    traces = value["device_traces"]
    for number, trace in enumerate(traces[:_MAX_DEVICES] if isinstance(traces, (list, tuple)) else ()):
        entries = list(reader.each(trace))
        if entries or number in blocks:
            device = found.setdefault(number, DeviceHistory(number))
            _add_history(device, entries, blocks.get(number, {}), reader)
    for number, held in blocks.items():
        if not found[number].events:
            _add_history(found[number], [], held, reader)
    return [found[number] for number in sorted(found) if found[number].events]


class _Reader:
    """Walks a snapshot, with a bounded number of steps."""

    def __init__(self) -> None:
        self._left = MAX_ENTRIES
        self.stacks = StackReader()

    def each(self, value: Any) -> Iterator[Mapping[str, Any]]:
        """Yields the dictionaries in a list. Raises :class:`InvalidTrace` if there are too many."""
        for item in value if isinstance(value, (list, tuple)) else ():
            self._left -= 1
            if self._left < 0:
                raise InvalidTrace(f"it has more than {MAX_ENTRIES:,} entries")
            if isinstance(item, dict):
                yield item


def _add_segment(device: DeviceHistory, segment: Mapping[str, Any], in_use: int, largest: int) -> None:
    kind = "small" if segment.get("segment_type") == "small" else "large"
    kind = "expandable" if segment.get("is_expandable") is True else kind
    pool = segment.get("segment_pool_id")
    numbers = pool[:2] if isinstance(pool, (list, tuple)) else ()
    private = ".".join(str(_non_negative_int(part)) for part in numbers) if any(map(_non_negative_int, numbers)) else ""
    stream = _non_negative_int(segment.get("stream"))
    empty = MemorySegments(kind=kind, pool=private, stream=stream, count=0, reserved_bytes=0, allocated_bytes=0)
    summed = device.segments.get((kind, private, stream), empty)
    device.segments[kind, private, stream] = msgspec.structs.replace(
        summed,
        count=summed.count + 1,
        reserved_bytes=summed.reserved_bytes + _non_negative_int(segment.get("total_size")),
        allocated_bytes=summed.allocated_bytes + in_use,
        largest_free_bytes=max(summed.largest_free_bytes, largest),
    )


def _change_of_block(at: int, size: int, block: Mapping[str, Any], reader: _Reader) -> MemoryChange:
    history = block.get("history")  # PyTorch 2.0
    last = history[0] if isinstance(history, list) and history and isinstance(history[0], dict) else {}
    requested = _non_negative_int(block.get("requested_size")) or _non_negative_int(last.get("real_size")) or size
    stack = reader.stacks.read(block.get("frames") or last.get("frames"))
    return MemoryChange(0, False, at, size, requested, stack, before_history=True)


def _device(entry: Mapping[str, Any], found: dict[int, DeviceHistory]) -> DeviceHistory | None:
    number = entry.get("device", 0)
    if type(number) is not int or not 0 <= number < _MAX_DEVICES:
        return None
    return found.setdefault(number, DeviceHistory(number))


def _add_history(
    device: DeviceHistory, entries: list[Mapping[str, Any]], blocks: Mapping[int, MemoryChange], reader: _Reader
) -> None:
    """The events of a device: first what was alive before its history begins, then the history."""
    started = min((_non_negative_int(entry.get("time_us")) for entry in entries if entry.get("time_us")), default=0)
    device.history_began = started
    changes: list[MemoryChange] = []
    before: dict[int, MemoryChange] = {}
    live: set[int] = set()
    stack_of_free: dict[int, Stack] = {}
    for entry in entries:
        action, address = entry.get("action"), _non_negative_int(entry.get("addr"))
        at = max(_non_negative_int(entry.get("time_us")) - started, 0) * _PICOSECONDS_PER_MICROSECOND
        size = _non_negative_int(entry.get("size"))
        if action == "alloc":
            live.add(address)
            changes.append(
                MemoryChange(at, False, address, _rounded(size), size, reader.stacks.read(entry.get("frames")))
            )
        elif action == "free_requested":
            stack_of_free[address] = reader.stacks.read(entry.get("frames"))
        elif action in ("free_completed", "free"):
            if address in live:
                live.discard(address)
            else:
                before.setdefault(
                    address, MemoryChange(0, False, address, _rounded(size), size, NO_STACK, before_history=True)
                )
            freed_by = stack_of_free.pop(address, NO_STACK)
            changes.append(MemoryChange(at, True, address, 0, size, freed_by))
        elif action in ("segment_alloc", "segment_map"):
            device.reserved_changes.append((at, size))
        elif action in ("segment_free", "segment_unmap"):
            device.reserved_changes.append((at, -size))
        elif action == "oom":
            device.refused_bytes, device.free_at_refusal = size, _non_negative_int(entry.get("device_free"))
            device.refused_line = reader.stacks.read(entry.get("frames")).line
    for address, block in blocks.items():
        if address not in live:
            before[address] = block
    device.recorded = bool(changes)
    changes = [*before.values(), *changes]
    device.refused_line = reader.stacks.shorten(device.refused_line)
    assign_groups(changes, failed=device.refused_bytes is not None)
    in_use = peak = 0
    sizes: dict[int, int] = {}
    for change in changes:
        size = sizes.pop(change.address, 0)
        in_use -= size
        if not change.is_free:
            size = sizes[change.address] = change.block_bytes
            in_use += size
        peak = max(peak, in_use)
        key = "" if change.is_free else device.add_holder(change, reader.stacks)
        held = (size, change.requested_bytes, in_use, 0, peak, -1.0)
        device.events.append(AllocatorEvent(change.at, change.is_free, change.address, *held, key))


def _rounded(size: int) -> int:
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


def _non_negative_int(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 63 else 0
