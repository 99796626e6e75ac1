"""GPU time by user, job or program over some time. ``gpuwatch.usage/1``."""

from __future__ import annotations

import datetime
from typing import Literal

import msgspec

GroupBy = Literal["user", "job", "container", "command", "framework", "process"]


class UsageGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of one user, job or program, over the time of the document.

    Of :attr:`user`, ``container``, ``command``, ``framework`` and ``pid``, those are given that all its processes
    have in common. The one that it was grouped by is null if it could not be read, or a process has none.
    """

    user: str | None = None
    container: str | None = None
    """``slurm job 4711``, ``pod train-0``, ``container 4f1d4f1d4f1d``."""
    command: str | None = None
    """The program, such as ``train.py``."""
    framework: str | None = None
    pid: int | None = None
    unreadable: bool = False
    """Whether it is null because its processes could not be read, not because they have none."""
    gpus: tuple[int, ...] = ()
    """NVML's indices of the GPUs that it held."""
    processes: int
    """Number of processes; one on several GPUs counts once."""
    gpu_hours_held: float
    """Hours for which its processes were on GPUs, without gaps of the recording. The time of a GPU is divided equally
    among the processes that were on it, so that groups add up to hours of cards."""
    gpu_hours_used: float | None
    """Hours times SM utilization; null if that is unknown. With :attr:`gpu_hours_unknown`, a lower bound."""
    process_hours: float
    """Hours for which its processes were on GPUs, each process on each GPU counted whole."""
    process_hours_shared: float
    """The part of them in which the driver had no utilization of the process: that of the GPU was divided equally."""
    gpu_hours_unknown: float
    """The part of :attr:`process_hours` for which no utilization is known."""
    sm_percent_mean: float | None
    """Mean SM utilization of a process while it was on a GPU."""
    sm_percent_max: float | None
    """The highest SM utilization of one of its processes in a sample."""
    memory_peak_bytes: float | None
    """The most memory that one of its processes held on one GPU."""
    energy_joules: float | None
    """Its share of the energy of its GPUs, divided by SM utilization; equally where that is not known or 0 for all. By
    their counters, of GPUs without one integrated from power samples. Null if neither is known."""
    energy_gpu_hours: float
    """The part of :attr:`gpu_hours_held` for which energy is known."""
    energy_sampled_gpu_hours: float = 0.0
    """The part of these for which it is from power samples."""


class UsageDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, over the time of the document."""

    index: int
    uuid: str
    name: str
    hours_recorded: float
    """Hours for which its processes were recorded."""
    hours_held: float
    """Hours for which at least one process was on it."""
    hours_used: float | None
    """Hours times SM utilization of its processes; null if that is unknown."""
    hours_held_idle: float
    """The part of :attr:`hours_held` in which its utilization was 1 % at most."""
    hours_held_unknown: float
    """The part of :attr:`hours_held` for which its utilization is unknown."""
    hours_free: float
    """Hours for which no process was on it."""
    energy_joules: float | None
    """What its energy counter has counted in the recorded time, or without one, the integral of its power samples;
    null if it has neither."""
    energy_sampled: bool = False
    """Whether it, or a part of it, is from power samples."""
    energy_free_joules: float | None
    """The part of its energy while no process was on it."""
    processes_unsampled: int = 0
    """Processes between two samples, by the driver's accounting mode. They are in no group and no hours."""
    hours_unsampled: float = 0.0
    """Hours for which those held it."""


class UsageGap(msgspec.Struct, frozen=True, kw_only=True):
    """A time that was not recorded."""

    begin: datetime.datetime
    """The last sample before it."""
    end: datetime.datetime
    """The first sample after it."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.usage/1"):
    """GPU time of a recording: what was held, what was used, by whom. Nothing is extrapolated over gaps."""

    source: str
    """Name of the recording."""
    host: str | None
    simulated: bool
    gpuwatch_version: str
    redacted: bool = False
    by: GroupBy
    """What the processes are grouped by."""
    begin: datetime.datetime
    """Start of the time that it is about."""
    end: datetime.datetime
    """End of the time that it is about."""
    hours: float
    """Hours from start to end."""
    hours_recorded: float
    """Hours between samples that are no gap."""
    gaps: tuple[UsageGap, ...] = ()
    """The longest gaps."""
    total: UsageGroup
    """All processes together. Its :attr:`UsageGroup.gpu_hours_held` counts every GPU once, however many share it."""
    groups: tuple[UsageGroup, ...]
    """The most GPU-hours first."""
    devices: tuple[UsageDevice, ...]
    """The GPUs by index."""
    mig: bool = False
    """Whether processes on MIG instances are counted: NVML has no utilization of those."""
    graphics_processes: int = 0
    """The most graphics clients (Xorg) at once. They are not counted."""
    notes: tuple[str, ...] = ()
    """What else readers must know of the recording."""
