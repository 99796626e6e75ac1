"""The host's hostname, CPU, memory, swap, load, uptime and kind of container, from /proc (proc(5)) and /sys."""

from __future__ import annotations

import os
import time
from io import FileIO

from gpuwatch.core.model.snapshot import Host, Problem
from gpuwatch.machine.sources.procfs import boot_time


class ReopenedFile:
    """A file of /proc or /sys that is read often and kept open. Not shared between processes or threads."""

    def __init__(self, path: str, size: int) -> None:
        """``size``: bytes to read at most."""
        self._path = path
        self._size = size
        self._file: FileIO | None = None

    def read(self) -> bytes:
        """The current content. OSError."""
        if self._file is None:
            self._file = open(self._path, "rb", buffering=0)  # noqa: SIM115  # it stays open
        return os.pread(self._file.fileno(), self._size, 0)


class HostReader:
    """Reads the host with every sample; files that are read each time stay open."""

    def __init__(self) -> None:
        self._hostname = os.uname().nodename
        self._stat = ReopenedFile("/proc/stat", 512)
        self._meminfo = ReopenedFile("/proc/meminfo", 8192)
        self._online_cpus = ReopenedFile("/sys/devices/system/cpu/online", 1024)
        self._cpu_count: tuple[bytes, int | None] = (b"", None)
        """The kernel's list of CPUs that are online, and their number."""
        self._boot_time = boot_time()
        self._ticks: tuple[int, int] | None = None
        """Busy and all CPU ticks at the previous read."""
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
            sizes = self._memory_and_swap()
        except (OSError, ValueError, KeyError) as error:
            problems.append(Problem(source="host", reason="failed", detail=f"memory of the host: {error}"))
        try:
            load: tuple[float, float, float] | None = os.getloadavg()
        except OSError:
            load = None
        host = Host(
            hostname=self._hostname,
            cpu_percent=self._cpu_percent(),
            cpu_count=self._count_cpus(),
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
        """Percent of all cores together since the previous read."""
        before = self._ticks
        try:
            fields = self._stat.read().split(b"\n", 1)[0].split()
            user, nice, system, idle, iowait, irq, softirq, steal = (int(field) for field in fields[1:9])
        except (OSError, ValueError):
            return None
        busy = user + nice + system + irq + softirq + steal
        self._ticks = busy, busy + idle + iowait
        if before is None or self._ticks[1] <= before[1]:
            return None
        share = (busy - before[0]) / (self._ticks[1] - before[1])
        return round(min(max(share, 0.0), 1.0) * 100, 1)

    def _count_cpus(self) -> int | None:
        """Number of cores that are online; counted again when the kernel's list of them changes."""
        try:
            online = self._online_cpus.read()
        except OSError:
            return os.cpu_count()
        if online != self._cpu_count[0]:
            self._cpu_count = online, os.cpu_count()
        return self._cpu_count[1]

    def _memory_and_swap(self) -> tuple[int, int, int, int]:
        """Used and total memory, used and total swap, in bytes; used memory is the total less ``MemAvailable``.

        OSError, ValueError; KeyError for a missing field.
        """
        text = b"\n" + self._meminfo.read()
        # Four of about fifty lines.
        total, free, swap, swap_free = (
            _kibibytes(text, name) * 1024 for name in (b"MemTotal", b"MemAvailable", b"SwapTotal", b"SwapFree")
        )
        return total - free, total, swap - swap_free, swap


def _kibibytes(text: bytes, name: bytes) -> int:
    begin = text.find(b"\n" + name + b":")
    if begin < 0:
        raise KeyError(name.decode())
    begin += len(name) + 2
    return int(text[begin : text.find(b"\n", begin)].split()[0])
