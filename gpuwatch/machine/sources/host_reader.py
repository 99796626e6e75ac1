"""The host's hostname, CPU, memory, swap, load, uptime and kind of container; the only importer of psutil."""

from __future__ import annotations

import os
import time

import psutil

from gpuwatch.core.model.snapshot import Host, Problem
from gpuwatch.machine.sources import procfs


class HostReader:
    """Reads the host with every sample."""

    def __init__(self) -> None:
        self._hostname = os.uname().nodename
        self._boot_time = procfs.boot_time()
        self._cpu_seconds: tuple[float, float] | None = None
        """Busy seconds and all seconds of all cores together since boot, at the previous read."""
        self._first = True
        self._container: str | None = None

    def read(self) -> tuple[Host, list[Problem]]:
        """CPU percent since the previous read (None on the first), memory and swap (bytes), load, uptime (seconds)."""
        problems: list[Problem] = []
        if self._first:
            self._first = False
        elif self._container is None:
            # Not before the first sample: the dashboard waits for that one.
            from gpuwatch.machine.sources.system_and_driver_facts import container_kind

            self._container = container_kind(os.environ) or ""
        sizes: tuple[int | None, ...] = (None, None, None, None)
        try:
            memory, swap = psutil.virtual_memory(), psutil.swap_memory()
            sizes = memory.total - memory.available, memory.total, swap.used, swap.total
        except (OSError, ValueError, KeyError) as error:
            problems.append(Problem(source="host", reason="failed", detail=f"memory of the host: {error}"))
        try:
            load: tuple[float, float, float] | None = os.getloadavg()
        except OSError:
            load = None
        host = Host(
            hostname=self._hostname,
            cpu_percent=self._cpu_percent(),
            cpu_count=os.cpu_count(),
            memory_used_bytes=sizes[0],
            memory_total_bytes=sizes[1],
            swap_used_bytes=sizes[2],
            swap_total_bytes=sizes[3],
            load=load,
            uptime_seconds=time.time() - self._boot_time,
            container=self._container or None,
        )
        return host, problems

    def _cpu_percent(self) -> float | None:
        """Percent of all cores together since the previous read; None on the first, or if the clocks stood still."""
        before = self._cpu_seconds
        try:
            times = psutil.cpu_times()
        except (OSError, ValueError):
            return None
        busy = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
        self._cpu_seconds = busy, busy + times.idle + times.iowait
        if before is None or self._cpu_seconds[1] <= before[1]:
            return None
        share = (busy - before[0]) / (self._cpu_seconds[1] - before[1])
        return round(min(max(share, 0.0), 1.0) * 100, 1)
