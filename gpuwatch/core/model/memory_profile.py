"""Who held an allocator's memory at its peak, as a framework's own recorder saw it."""

from __future__ import annotations

import datetime
from typing import Literal

import msgspec

Group = Literal[
    "weights",
    "weights and caches",
    "caches",
    "arrays",
    "executables",
    "optimizer state",
    "other variables",
    "gradients",
    "activations",
    "inputs",
    "created",
    "workspace",
    "unattributed",
]


class AllocationGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Allocations alive at the peak that are alike: made by one op, with one shape and type."""

    op: str = ""
    """Name of the op that allocated it, as the framework has it; empty if unknown."""
    layer: str = ""
    """Name scope of the op, which is that of its layer; of PyTorch the line of a library's layer that the program
    called; empty if it has none."""
    source: str = ""
    """Line of the program that allocated it, ``train.py:12 in forward``; empty if unknown."""
    variable: str = ""
    """The variable whose size, type and lifetime it has; empty if it is none."""
    group: Group = "unattributed"
    """What it was for, if names or variables show it."""
    region: str = ""
    """``output``, ``temp``, ``persist`` or ``dynamic``, as TensorFlow has it."""
    dtype: str | None = None
    shape: str | None = None
    """``[64,512]``."""
    shape_from: str = ""
    """Who gave the shape: ``framework``, ``variable`` or ``input``, worked out of the size."""
    count: int = 1
    """Number of allocations."""
    allocated_bytes: int
    """Bytes taken from the pool, all of them together."""
    requested_bytes: int
    """Bytes that were asked for: the allocator rounds them up."""


class MemoryMoment(msgspec.Struct, frozen=True, kw_only=True):
    """The fullest moment of several allocations and frees."""

    t: float
    """Seconds since the recording began."""
    in_use_bytes: int
    """Bytes in use of the allocator."""
    groups: dict[str, int] = {}
    """Bytes by group; what was allocated outside of the recording is in none."""
    lines: tuple[int, ...] = ()
    """Bytes of each of the profile's :attr:`~MemoryProfile.lines`."""
    step: int | None = None
    """Steps of the program counted before."""
    window: int = 0
    """In which window of the recording, from 0."""


class MemorySegments(msgspec.Struct, frozen=True, kw_only=True):
    """Segments of an allocator that are alike, at the end of the recording."""

    kind: str
    """``large`` or ``small``, as PyTorch has it; ``expandable`` if the driver maps it piece by piece."""
    pool: str = ""
    """The private pool of a CUDA graph or of the program; empty for the common one."""
    stream: int = 0
    """The CUDA stream that may use it; 0: the default one."""
    count: int = 1
    reserved_bytes: int
    """Bytes taken from the driver."""
    allocated_bytes: int
    """Bytes of blocks in use."""
    largest_free_bytes: int = 0
    """The largest free block."""


class MemoryProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One allocator's memory at its peak and over time, from a recorder of TensorFlow, PyTorch or JAX."""

    tool: Literal["tensorflow", "torch", "jax"]
    """Whose recorder it was."""
    device: str
    """The framework's device, ``GPU:0``, or ``host``."""
    allocator: str
    """Name of the allocator, as the framework has it."""
    pid: int | None = None
    peak_bytes: int
    """Most bytes in use in what was recorded."""
    peak_seconds: float
    """When that was, in seconds since the recording began."""
    program_peak_bytes: int | None = None
    """Most bytes in use of the whole program, by the allocator; larger if the peak was not recorded."""
    limit_bytes: int | None = None
    pool_bytes: int | None = None
    """What the allocator had got from the driver at the peak; None if it was not recorded."""
    live_bytes: int = 0
    """Bytes alive at the peak whose allocation was recorded."""
    before_bytes: int = 0
    """Bytes at the peak that were in use before the recording began, as the allocator counts them, and whose allocation
    is therefore unknown."""
    requested_bytes: int = 0
    """Bytes that the program asked for of these; the rest is rounding."""
    named_bytes: int = 0
    """Those whose op or line is known."""
    shaped_bytes: int = 0
    """Those whose shape is known."""
    fragmentation: float | None = None
    """Share of the pool's free memory at the peak that was not in its largest free block, from 0 to 1."""
    failed_bytes: int | None = None
    """Bytes of a request that was refused; None if none was."""
    failed_source: str = ""
    """The line of the program whose request was refused; empty if it is unknown."""
    device_free_bytes: int | None = None
    """Free memory of the device when it was refused; None if it is unknown."""
    holders: tuple[AllocationGroup, ...] = ()
    """What was alive at the peak, largest first."""
    ending: tuple[AllocationGroup, ...] = ()
    """What was alive when a snapshot with a history was taken, largest first; PyTorch only."""
    ending_bytes: int | None = None
    """Bytes of it; None if it is not known."""
    ended_at: datetime.datetime | None = None
    """When a snapshot's history ends; None if it has no times."""
    more_bytes: int = 0
    """Bytes of the holders that are not listed: there are too many."""
    groups: dict[str, int] = {}
    """Bytes alive at the peak by group."""
    lines: tuple[str, ...] = ()
    """The lines of the program that held most at the peak; PyTorch only."""
    moments: tuple[MemoryMoment, ...] = ()
    """Memory over the recording, in equal numbers of allocations and frees rather than of seconds."""
    recorded_seconds: float = 0.0
    """Seconds that were recorded, in all windows."""
    windows: int = 1
    """Number of windows."""
    has_history: bool = True
    """Whether allocations were recorded; if not, what was alive when the snapshot was taken stands for the peak."""
    timed: bool = True
    """Whether the times of the recording are known."""
    segments: tuple[MemorySegments, ...] = ()
    """What the allocator had from the driver when the snapshot was taken."""
    events: int = 0
    """Allocations and frees that were read."""
    notes: tuple[str, ...] = ()
    """What readers must know about the recording, one sentence each."""
