"""Replays the allocations and frees of an allocator: what was alive at its peak, and how its memory went.

TensorFlow's profiler records windows. What was allocated in one and freed between two is found where its place is taken
again; what was allocated between two windows is missing, and counted as that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MAX_MOMENTS = 300


class AllocatorEvent(NamedTuple):
    """An allocation or a free, in bytes."""

    at: int
    """Picoseconds since the recording began."""
    frees: bool
    address: int
    size: int
    """Bytes taken from the pool."""
    requested: int
    in_use: int
    """Bytes in use of the allocator after it."""
    available: int
    """Bytes that it may still take."""
    peak: int
    """Most bytes in use so far."""
    fragmentation: float
    """Share of the pool's free memory outside its largest free block."""
    op: str
    region: str = ""
    """``output``, ``temp``, ``persist``, ``dynamic``; empty if unknown."""
    dtype: str = ""
    shape: str = ""
    """``[64,512]``; empty if unknown."""


@dataclass(eq=False, slots=True)
class Allocation:
    """One allocation, and when it was freed."""

    event: AllocatorEvent
    allocated_at: int
    """Picoseconds since the first window began."""
    freed_at: int | None = None

    def life(self, end: int) -> int:
        """Picoseconds until it was freed; until ``end`` if it was not."""
        return (end if self.freed_at is None else self.freed_at) - self.allocated_at

    @property
    def end_address(self) -> int:
        """The first address after it."""
        return self.event.address + self.event.size


@dataclass(slots=True)
class Window:
    """Events between the start and the stop of a recorder, in the order of time."""

    events: Sequence[AllocatorEvent]
    begin: int = 0
    """Picoseconds since the first window began."""
    steps: tuple[int, int] | None = None
    """Steps of the program counted at its start and end."""


@dataclass(slots=True)
class Moment:
    """The fullest moment of some; times in picoseconds since the first window began."""

    at: int
    in_use: int
    groups: dict[str, int]
    window: int


class Replay:
    """Replays the recorded windows of one allocator, each of which has events."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self._changes: list[list[tuple[int, int, Allocation, bool]]] = []
        """For each window: time, bytes in use, the allocation, and whether it is freed."""
        self._unseen_frees: list[list[Allocation]] = []
        """For each window: what was freed before it, unseen."""
        self.alive_at_peak: list[Allocation] = []
        """Recorded allocations that were alive at the peak."""
        self.bytes_before = 0
        """Bytes at the peak that were in use before the first window; known of a single window alone."""
        self.peak_event = max((event for window in windows for event in window.events), key=lambda event: event.in_use)
        """The first with the most bytes in use."""
        self.peak_at = self.end = 0
        """When it was, and when the last event was."""
        live: dict[int, Allocation] = {}
        for window in windows:
            freed = _find_unseen_frees(live, window.events)
            for allocation in freed:
                allocation.freed_at = window.begin
                del live[allocation.event.address]
            changes = []
            first = window.events[0].at
            for event in window.events:
                at = window.begin + event.at - first
                before = live.pop(event.address, None)
                if before is not None:  # freed, or its free was not recorded
                    before.freed_at = at
                    changes.append((at, event.in_use, before, True))
                if not event.frees:
                    live[event.address] = Allocation(event, at)
                    changes.append((at, event.in_use, live[event.address], False))
                if event is self.peak_event:
                    self.alive_at_peak, self.peak_at = list(live.values()), at
            self.end = window.begin + window.events[-1].at - first
            self._changes.append(changes)
            self._unseen_frees.append(freed)
        self.alive_at_end = list(live.values())
        """Recorded allocations that were alive at the end."""
        if len(windows) == 1:
            self.bytes_before = max(
                self.peak_event.in_use - sum(allocation.event.size for allocation in self.alive_at_peak), 0
            )

    def moments(self, group: Callable[[Allocation], str], earlier_allocations: int = 0) -> list[Moment]:
        """The fullest moment of each of :data:`MAX_MOMENTS` equal shares of the allocations and frees.

        Not of the time: most of it passes without any, and steps would be too narrow to be seen.
        ``earlier_allocations``: number of those at the start that were made before the recording.
        """
        changes_per_moment = max(-(-(sum(map(len, self._changes)) - earlier_allocations) // MAX_MOMENTS), 1)
        found: list[Moment] = []
        sums: dict[str, int] = {}
        for number, (changes, freed) in enumerate(zip(self._changes, self._unseen_frees, strict=True)):
            for allocation in freed:
                sums[group(allocation)] -= allocation.event.size
            for place, (at, in_use, allocation, frees) in enumerate(changes):
                name = group(allocation)
                sums[name] = sums.get(name, 0) + (-allocation.event.size if frees else allocation.event.size)
                if place < earlier_allocations - 1 and number == 0:
                    continue
                if not found or found[-1].window != number or (place - earlier_allocations) % changes_per_moment == 0:
                    found.append(Moment(at, in_use, dict(sums), number))
                elif in_use > found[-1].in_use:
                    found[-1] = Moment(at, in_use, dict(sums), number)
        return found


def _find_unseen_frees(live: dict[int, Allocation], events: Sequence[AllocatorEvent]) -> list[Allocation]:
    """Allocations alive at the end of the last window that had been freed when this one began.

    Their place is allocated again before it is freed, or they do not fit into what was in use then.
    """
    if not live:
        return []
    starts = sorted(live)
    freed: dict[int, Allocation] = {}
    seen: set[int] = set()
    for event in events:
        if event.frees:
            if event.address in live:
                seen.add(event.address)
            continue
        at = bisect_left(starts, event.address + event.size) - 1
        while at >= 0 and live[starts[at]].end_address > event.address:
            address = starts.pop(at)
            if address not in seen:
                freed[address] = live[address]
            at -= 1
    first = events[0]
    before = first.in_use + (first.size if first.frees else -first.size)
    kept = [allocation for address, allocation in live.items() if address not in freed]
    total = sum(allocation.event.size for allocation in kept)
    # The youngest are the least likely to have stayed.
    for allocation in sorted(kept, key=lambda allocation: -allocation.allocated_at):
        if total <= before:
            break
        if allocation.event.address not in seen:
            freed[allocation.event.address] = allocation
            total -= allocation.event.size
    return list(freed.values())
