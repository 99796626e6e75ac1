"""Whether a process computes on its GPU or is idle, as far as the driver tells.

An idle time ends with the first sample that has a kernel of the process; it begins only when no kernel was seen for
:data:`QUIET_SECONDS`. The driver samples kernels: a program with short ones now and then (a server with few requests,
a cell of a notebook, a loop that waits for its input) has them in one second and not in the next, and would be called
idle and busy by turns. Column, finding, recording and report have it from the collector, which follows this rule.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_IDLE_PERCENT = 1.0
"""Utilization in percent up to which a GPU counts as idle; a process whose own share is above 0 computes."""

MIN_IN_USE_PERCENT = 10.0
"""Utilization in percent from which a GPU is in use though no process is listed on it: another container's may be."""

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
    """The activity after a sample, from that ``before`` it, which is None if nobody has seen the process compute.

    ``idle``: what :func:`is_idle` says of the sample at ``now``. The idle time begins with the first sample without a
    kernel, not when it has become long enough.
    """
    if not idle:
        return Activity(0, 0)
    quiet = (before.quiet_since if before is not None else 0) or now
    long_enough = before is None or before.idle_since or now - quiet >= QUIET_SECONDS
    return Activity(quiet if long_enough else 0, quiet)


def is_idle(gpu_percent: float | None, own_percent: float | None, *, only_others: bool, alone: bool) -> bool | None:
    """Whether a process had no kernel in one sample; None if the driver does not tell.

    ``gpu_percent``: utilization of its GPU in percent. ``own_percent``: the process's share of it
    (nvmlDeviceGetProcessUtilization).
    ``only_others``: the driver has samples of other processes that compute there, and none of this one.
    ``alone``: no other process is on the GPU.
    """
    if own_percent:
        return False  # also where the GPU rests at this moment: its utilization is that of a shorter time
    if gpu_percent is not None and gpu_percent <= MAX_IDLE_PERCENT:
        return True
    if own_percent is not None:
        return True
    if only_others:
        return True
    return False if gpu_percent is not None and alone else None
