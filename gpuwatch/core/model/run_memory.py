"""Memory of a run over time: of the GPUs, of each process on them, and of the host."""

from __future__ import annotations

from typing import Final

import msgspec


class MemoryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Device memory at one moment of the run, by NVML and the allocator."""

    t: float
    """Seconds since the run was started."""
    device_used_bytes: int | None = None
    process_bytes: int | None = None
    allocator_bytes: int | None = None
    gpu_percent: float | None = None
    computes: bool | None = None


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that one process held on one GPU, by NVML, and when it was seen there."""

    pid: int
    own: bool = False
    """Whether it is a process of this run."""
    before_bytes: int | None = None
    """Before the start; None: it was not there, or NVML did not report it."""
    peak_bytes: int | None = None
    first_seconds: float | None = None
    """Since the start; None: it was gone before the first sample."""
    last_seconds: float | None = None


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One device of the run, by NVML, in the sample with its highest memory use."""

    uuid: str
    index: int
    total_bytes: int | None = None
    before_bytes: int | None = None
    """In use before the start, by all processes."""
    used_bytes: int | None = None
    process_bytes: int | None = None
    """This process's part of it."""
    others_bytes: int | None = None
    """Used by processes outside this run, by NVML."""
    unexplained_bytes: int | None = None
    """Used by no process that NVML lists."""
    driver_reserved_bytes: int | None = None
    """Reserved by the driver, in addition to what is used."""
    context_bytes: int | None = None
    """Size of a CUDA context; known for simulated devices only."""
    others_before_bytes: int | None = None
    others_start_bytes: int | None = None
    """Held by other processes in the first sample in which this run was on the device."""
    others_peak_bytes: int | None = None
    """Most that other processes held in any sample, by NVML."""
    least_free_bytes: int | None = None
    """Least free memory of the device in any sample."""
    own_samples: int = 0
    """Samples in which this run was on the device."""
    busiest_percent: float | None = None
    """Highest utilization in them; None if NVML did not report it in one of them."""
    holders: tuple[Holding, ...] = ()
    """Every process seen on the device, before the start or later; largest first."""


NO_PEAK_PREFIX: Final = "NVML's peak: "
"""Start of the problem that says why ``Memory.nvml_peak_bytes`` is unknown."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of the run; each number has one owner, and they are never added up.

    NVML's numbers without another prefix are those of the device on which this process held most.
    """

    allocator_peak_bytes: int | None = None
    allocator_limit_bytes: int | None = None
    nvml_peak_bytes: int | None = None
    """Peak memory of this process by NVML, on the device on which it held most."""
    nvml_device_peak_bytes: int | None = None
    """Peak memory used on the device by all processes."""
    nvml_before_bytes: int | None = None
    device_total_bytes: int | None = None
    device_uuid: str | None = None
    driver_reserved_bytes: int | None = None
    unexplained_bytes: int | None = None
    """Used at the peak by no process that NVML lists."""
    context_bytes: int | None = None
    devices: tuple[DeviceMemory, ...] = ()
    """Every device on which this process was seen, in NVML's order."""
    allocators: dict[str, int] = {}
    """Peak bytes in use of each logical device's allocator."""
    timeline: tuple[MemoryPoint, ...] = ()


class HostMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Host memory (RAM) of a watched program, if SIGKILL ended it or a process that it started."""

    peak_bytes: int | None = None
    """Largest resident set of one of its processes that have exited (``getrusage(2)``: ru_maxrss)."""
    limit_bytes: int | None = None
    """Limit of its control group."""
    total_bytes: int | None = None
    """RAM of the machine."""
    oom_kills: int | None = None
    """Processes killed meanwhile by the kernel's OOM killer, in the control group or else on the machine."""
    kernel_line: str = ""
    """The kernel's log line about it; empty if there is none, or it may not be read."""
