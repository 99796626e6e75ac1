"""The host's totals out of /proc (proc(5)): a tenth of what psutil needs for them, its import not counted."""

from __future__ import annotations

import os
from io import FileIO
from typing import NamedTuple


class Again:
    """A file of the kernel's that is read again and again, and so is opened once. One for each process and thread."""

    def __init__(self, path: str, size: int) -> None:
        """``size``: bytes that are enough."""
        self._path = path
        self._size = size
        self._file: FileIO | None = None

    def read(self) -> bytes:
        """What it says now. OSError."""
        if self._file is None:
            self._file = open(self._path, "rb", buffering=0)  # noqa: SIM115  # it stays open
        return os.pread(self._file.fileno(), self._size, 0)


class Host:
    """What is read of the host with every sample."""

    def __init__(self) -> None:
        self._stat = Again("/proc/stat", 512)
        self._memory = Again("/proc/meminfo", 8192)
        self._online = Again("/sys/devices/system/cpu/online", 1024)
        self._cpus: tuple[bytes, int | None] = (b"", None)

    def cpu_ticks(self) -> tuple[int, int]:
        """Busy ticks of all cores together since the start, and all ticks. OSError, ValueError."""
        fields = self._stat.read().split(b"\n", 1)[0].split()
        user, nice, system, idle, iowait, irq, softirq, steal = (int(field) for field in fields[1:9])
        busy = user + nice + system + irq + softirq + steal
        return busy, busy + idle + iowait

    def cpu_count(self) -> int | None:
        """Cores that are switched on: counted when the kernel's list of them is another one than before."""
        try:
            online = self._online.read()
        except OSError:
            return os.cpu_count()
        if online != self._cpus[0]:
            self._cpus = online, os.cpu_count()
        return self._cpus[1]

    def sizes(self) -> Sizes:
        """Memory and swap. OSError, ValueError, KeyError for a field that is not there."""
        text = b"\n" + self._memory.read()
        # Four of some fifty lines.
        total, free, swap, swap_free = (
            _kibibytes(text, name) * 1024 for name in (b"MemTotal", b"MemAvailable", b"SwapTotal", b"SwapFree")
        )
        return Sizes(total - free, total, swap - swap_free, swap)


class Sizes(NamedTuple):
    """Bytes."""

    used: int
    """What could not be given to a program that asks for memory now."""
    total: int
    swap_used: int
    swap_total: int


def boot_time() -> float:
    """Seconds since the epoch. OSError, ValueError."""
    with open("/proc/stat", "rb") as file:
        for line in file:
            if line.startswith(b"btime "):
                return float(line.split()[1])
    raise ValueError("/proc/stat does not say when the system was started")


def _kibibytes(text: bytes, name: bytes) -> int:
    begin = text.find(b"\n" + name + b":")
    if begin < 0:
        raise KeyError(name.decode())
    begin += len(name) + 2
    return int(text[begin : text.find(b"\n", begin)].split()[0])


def stopped(pid: int) -> bool:
    """Whether a process stands still by a signal or a debugger (states T and t of proc(5)); False when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read(512).rpartition(b")")[2].split()[:1] in ([b"T"], [b"t"])
    except OSError:
        return False


def runs(name: str) -> bool:
    """Whether a process of this name (of 15 characters, as the kernel keeps them) can be seen."""
    wanted = name[:15].encode()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/comm", "rb", buffering=0) as file:
                    if file.read(32).rstrip(b"\n") == wanted:
                        return True
            except OSError:
                continue  # it has ended meanwhile
    return False
