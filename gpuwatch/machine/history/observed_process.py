"""What was observed of a process on a device: how long it held it, its SM utilization and its memory."""

from __future__ import annotations

import msgspec

from gpuwatch.core.model.snapshot import Process


class ObservedProcess(msgspec.Struct, kw_only=True):
    """Totals observed for a process on a device."""

    last: float
    """When it was last seen there, in seconds since the epoch."""
    memory_peak_bytes: float | None = None
    sm_percent_max: float | None = None
    sm_percent_seconds: float = 0.0
    """Percent times seconds, over :attr:`sm_seconds`."""
    sm_seconds: float = 0.0
    """Seconds for which its SM utilization is known."""
    held_seconds: float = 0.0
    """Seconds for which it was seen on the device, without gaps between samples."""

    def observe(self, row: Process, at: float, max_gap_seconds: float) -> None:
        """Adds the time since it was last seen, unless that exceeds ``max_gap_seconds``, with the row of its end."""
        seconds, self.last = at - self.last, at
        if not 0 < seconds <= max_gap_seconds:
            seconds = 0.0
        self.held_seconds += seconds
        held, used = row.readings.get("gpu_memory_bytes"), row.readings.get("sm_percent")
        if isinstance(held, (int, float)):
            self.memory_peak_bytes = held if self.memory_peak_bytes is None else max(self.memory_peak_bytes, held)
        if isinstance(used, (int, float)):
            self.sm_percent_max = used if self.sm_percent_max is None else max(self.sm_percent_max, used)
            self.sm_seconds += seconds
            self.sm_percent_seconds += used * seconds
