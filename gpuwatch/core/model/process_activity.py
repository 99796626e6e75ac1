"""Whether a process computes on its GPU, as far as the driver tells."""

from __future__ import annotations

MAX_IDLE_PERCENT = 1.0
"""Utilization in percent up to which a GPU counts as idle; a process whose own share is above 0 computes."""


def is_idle(busy: float | None, own: float | None, *, only_others: bool, alone: bool) -> bool | None:
    """Whether a process had no kernel; None if the driver does not tell.

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
