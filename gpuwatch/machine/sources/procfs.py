"""The host's totals from /proc (proc(5)): a tenth of psutil's time for them, not counting its import."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from io import FileIO
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")


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


class Host:
    """The host's totals that are read with every sample."""

    def __init__(self) -> None:
        self._stat = ReopenedFile("/proc/stat", 512)
        self._memory = ReopenedFile("/proc/meminfo", 8192)
        self._online = ReopenedFile("/sys/devices/system/cpu/online", 1024)
        self._cpus: tuple[bytes, int | None] = (b"", None)

    def cpu_ticks(self) -> tuple[int, int]:
        """Busy ticks and all ticks of all cores together since boot. OSError, ValueError."""
        fields = self._stat.read().split(b"\n", 1)[0].split()
        user, nice, system, idle, iowait, irq, softirq, steal = (int(field) for field in fields[1:9])
        busy = user + nice + system + irq + softirq + steal
        return busy, busy + idle + iowait

    def cpu_count(self) -> int | None:
        """Number of cores that are online; counted again when the kernel's list of them changes."""
        try:
            online = self._online.read()
        except OSError:
            return os.cpu_count()
        if online != self._cpus[0]:
            self._cpus = online, os.cpu_count()
        return self._cpus[1]

    def sizes(self) -> tuple[int, int, int, int]:
        """Used and total memory, used and total swap, in bytes; used memory is the total less ``MemAvailable``.

        OSError, ValueError; KeyError for a missing field.
        """
        text = b"\n" + self._memory.read()
        # Four of about fifty lines.
        total, free, swap, swap_free = (
            _kibibytes(text, name) * 1024 for name in (b"MemTotal", b"MemAvailable", b"SwapTotal", b"SwapFree")
        )
        return total - free, total, swap - swap_free, swap


def file_text(path: Path) -> str | None:
    """The content of a small file; None if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str | None:
    """The name of an account; None for an id without one."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def boot_id() -> str:
    """The kernel's name for this boot; empty if it has none."""
    return (file_text(Path("/proc/sys/kernel/random/boot_id")) or "").strip()


def boot_time(proc: str = "/proc") -> float:
    """When the system booted, in seconds since the epoch. OSError, ValueError."""
    with open(f"{proc}/stat", "rb") as file:
        for line in file:
            if line.startswith(b"btime "):
                return float(line.split()[1])
    raise ValueError(f"{proc}/stat has no boot time")


def _kibibytes(text: bytes, name: bytes) -> int:
    begin = text.find(b"\n" + name + b":")
    if begin < 0:
        raise KeyError(name.decode())
    begin += len(name) + 2
    return int(text[begin : text.find(b"\n", begin)].split()[0])


class ProcessStat(NamedTuple):
    """``/proc/<pid>/stat`` (proc(5))."""

    name: bytes
    fields: list[bytes]
    """From the state on."""

    @property
    def state(self) -> bytes:
        """``R`` while it has or wants a CPU, ``D``, ``Z`` and so on."""
        return self.fields[0]

    @property
    def parent(self) -> int:
        return int(self.fields[1])

    @property
    def cpu_ticks(self) -> int:
        """CPU time of all threads in user and kernel mode, in units of 1 / :data:`TICKS` seconds."""
        return int(self.fields[11]) + int(self.fields[12])

    @property
    def start_ticks(self) -> int:
        """When it was started, since boot."""
        return int(self.fields[19])

    @property
    def resident_pages(self) -> int:
        return int(self.fields[21])


def process_stat(pid: int, proc: str = "/proc") -> ProcessStat | None:
    """None when the process has exited."""
    try:
        with open(f"{proc}/{pid}/stat", "rb", buffering=0) as file:
            # The name may contain spaces and parentheses: the last one ends it.
            head, _, tail = file.read(4096).rpartition(b")")
    except OSError:
        return None
    fields = tail.split()
    return ProcessStat(head.partition(b"(")[2], fields) if len(fields) >= 22 else None


STOPPED = (b"T", b"t")
"""States of a process that a signal or a debugger has stopped (proc(5))."""


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped; False when it has exited."""
    return state(pid) in STOPPED


def state(pid: int) -> bytes:
    """The state of a process; empty when it has exited."""
    stat = process_stat(pid)
    return b"" if stat is None else stat.state


def parent(pid: int) -> int:
    """The parent's pid; 0 for the first process, and where it cannot be read."""
    stat = process_stat(pid)
    return 0 if stat is None else stat.parent


def lineage(pid: int, parent_of: Callable[[int], int] = parent) -> Iterator[int]:
    """A process, its parent and so on, as far as they can be read."""
    seen = set[int]()
    while pid and pid not in seen:
        yield pid
        seen.add(pid)
        pid = parent_of(pid)


def disk_faults(pid: int) -> int:
    """How many pages a process has waited for the disk to deliver, such as of its program; 0 when it has exited."""
    stat = process_stat(pid)
    return 0 if stat is None else int(stat.fields[9])


def in_page_fault(pid: int) -> bool:
    """Whether a process's main thread waits for memory: blocked, but not in a system call (proc(5)).

    Only if several looks in a row find it so: each program has short faults. False where that cannot be read.
    """
    for look in range(_MAX_LOOKS):
        if look:
            time.sleep(_LOOK_SECONDS)
        try:
            with open(f"/proc/{pid}/syscall", "rb", buffering=0) as file:
                if not file.read(64).startswith(b"-1 "):
                    return False
        except OSError:
            return False
    return True


_MAX_LOOKS = 3
_LOOK_SECONDS = 0.03


def cpu_times(pid: int) -> tuple[float, float]:
    """Seconds for which a process's main thread had a CPU, and was ready without one (scheduler statistics).

    0 where the kernel does not count them, and when it has exited.
    """
    try:
        with open(f"/proc/{pid}/schedstat", "rb", buffering=0) as file:
            ran, waited = file.read(64).split()[:2]
            return int(ran) / 1e9, int(waited) / 1e9
    except (OSError, ValueError):
        return 0.0, 0.0


def pids(proc: str = "/proc") -> list[int]:
    """The processes that are visible here."""
    return [int(entry) for entry in os.listdir(proc) if entry.isdigit()]


def is_running(name: str) -> bool:
    """Whether a process of this name is visible; the kernel keeps 15 characters of a name."""
    wanted = name[:15].encode()
    for pid in pids():
        try:
            with open(f"/proc/{pid}/comm", "rb", buffering=0) as file:
                if file.read(32).rstrip(b"\n") == wanted:
                    return True
        except OSError:
            continue  # it has exited
    return False
