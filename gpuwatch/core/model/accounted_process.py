"""A process that used a GPU, as the driver's accounting mode reports it after its end."""

from __future__ import annotations

import msgspec

MAX_CLOCK_SKEW_SECONDS = 2.0
"""Seconds by which the clocks of the driver and of the kernel may differ."""


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
