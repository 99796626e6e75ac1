"""Whether a process computes on its GPU, as far as the driver tells; and what accounting mode says after its end.

One kernel ends an idle time at once, for the memory is in use; an idle time begins only when no kernel was seen for
:data:`QUIET_SECONDS`. The driver samples kernels: a program with short ones now and then (a server with few requests,
a cell of a notebook, a loop that waits for its input) has them in one second and not in the next, and would be called
idle and busy by turns. Column, finding, recording and report have it from the collector, which follows this rule.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

MAX_IDLE_PERCENT = 1.0
"""Utilization in percent up to which a GPU counts as idle; a process whose own share is above 0 computes."""

MIN_IN_USE_PERCENT = 10.0
"""Utilization in percent from which a GPU is in use, though no process is listed on it."""

QUIET_SECONDS = 10
"""Seconds without a kernel after which a process that computed is idle. Ten samples at the usual interval: much longer
than the driver's own period (a sixth of a second to one second), and short beside the minute of the finding."""


class Activity(NamedTuple):
    """What is known of a process from one sample to the next, in whole seconds since the epoch."""

    idle_since: int
    """When its idle time began; 0 while it computes, or did a moment ago."""
    quiet_since: int
    """When a kernel of it was first missed; 0 in a sample that has one."""


def activity_after_sample(before: Activity | None, idle: bool, now: int) -> Activity:
    """The activity after a sample, from that before it; None for a process that nobody has seen compute.

    ``idle``: what :func:`is_idle` says of the sample at ``now``. The idle time begins with the first sample without a
    kernel, not when it has become long enough.
    """
    if not idle:
        return Activity(0, 0)
    quiet = (before.quiet_since if before is not None else 0) or now
    long_enough = before is None or before.idle_since or now - quiet >= QUIET_SECONDS
    return Activity(quiet if long_enough else 0, quiet)


def is_idle(busy: float | None, own: float | None, *, only_others: bool, alone: bool) -> bool | None:
    """Whether a process had no kernel in one sample; None if the driver does not tell.

    ``busy``: utilization of its GPU in percent. ``own``: the process's share of it (nvmlDeviceGetProcessUtilization).
    ``only_others``: the driver has samples of other processes that compute there, and none of this one.
    ``alone``: no other process is on the GPU.
    """
    if own:
        return False  # also where the GPU rests at this moment: its utilization is that of a shorter time
    if busy is not None and busy <= MAX_IDLE_PERCENT:
        return True
    if own is not None:
        return True
    if only_others:
        return True
    return False if busy is not None and alone else None


class AccountedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a GPU from its start to its end, by the driver (nvmlDeviceGetAccountingStats)."""

    pid: int
    started_at: float
    """When it began to use the GPU, in seconds since the epoch."""
    used_seconds: float
    """Seconds for which it had a context on the GPU."""
    gpu_percent: int | None
    """Percent of this time in which one of its kernels ran; null if the driver does not report it."""
    memory_percent: int | None
    """Percent of this time in which device memory was read or written."""
    peak_bytes: int | None
    """The most memory that it held."""

    def may_be(self, pid: int, create_time: float | None) -> bool:
        """Whether it can be this process: a pid is used again."""
        return self.pid == pid and (create_time is None or self.started_at >= create_time - MAX_CLOCK_SKEW_SECONDS)


MAX_CLOCK_SKEW_SECONDS = 2.0
"""Seconds by which the clocks of the driver and of the kernel may differ."""
