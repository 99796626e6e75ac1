"""Files of /proc (proc(5)): processes and why one is not shown, their states, times, parents, users; time of boot."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.errors import GpuwatchError

TICKS = os.sysconf("SC_CLK_TCK")
"""Clock ticks in a second, the unit of CPU and start times in /proc."""
FIRST_PID = 1
"""The first process: it adopts orphans, and is an ancestor of every other."""
_MULTIPROCESSING_HELPERS = (b"multiprocessing.resource_tracker", b"multiprocessing.forkserver")
_PAGE_FAULT_CHECKS = 3
_PAGE_FAULT_CHECK_SECONDS = 0.03


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
    """When the system booted, in seconds since the epoch. GpuwatchError where /proc is not mounted or not readable."""
    reason = "it has no boot time"
    try:
        with open(f"{proc}/stat", "rb") as file:
            for line in file:
                if line.startswith(b"btime "):
                    return float(line.split()[1])
    except OSError as error:
        reason = error.strerror or str(error)
    hint = "gpuwatch reads the host and its processes from /proc; to mount it: mount -t proc proc /proc"
    raise GpuwatchError(f"cannot read {proc}/stat: {reason}", hint=hint)


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

    @property
    def argument_addresses(self) -> tuple[bytes, ...]:
        """Where its arguments and environment are: others once it executes a program, even the same one again.

        ``arg_start`` and ``env_start``; zeros where the environment may not be read either.
        """
        return tuple(self.fields[45:48:2])


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


def leader_of(thread: int) -> int | None:
    """The process that a thread belongs to (proc(5), ``status``: Tgid); None when it has exited."""
    try:
        with open(f"/proc/{thread}/status", encoding="utf-8", errors="replace") as file:
            return next((int(line.partition(":")[2]) for line in file if line.startswith("Tgid:")), None)
    except (OSError, ValueError):
        return None


def descends(pid: int, ancestor: int) -> bool:
    """Whether ``pid`` is ``ancestor`` or one of its descendants; False when it has exited."""
    return ancestor in lineage(pid)


def start_time(pid: int) -> float | None:
    """Monotonic time at which a process was started (proc(5), ``stat``: starttime); None when it has exited."""
    stat = process_stat(pid)
    if stat is None:
        return None
    return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - stat.start_ticks / TICKS)


def runs_python(pid: int) -> bool:
    """Whether a process was started as a Python of its own, not forked from one, nor as a helper of multiprocessing."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        parent_pid = parent(pid)
        parent_command = Path(f"/proc/{parent_pid}/cmdline").read_bytes() if parent_pid else b""
        program = Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return False
    is_helper = any(helper in command for helper in _MULTIPROCESSING_HELPERS)
    return "python" in program and command != parent_command and not is_helper


def major_faults(pid: int) -> int:
    """How many pages a process has waited for the disk to deliver, such as of its program; 0 when it has exited."""
    stat = process_stat(pid)
    return 0 if stat is None else int(stat.fields[9])


def in_page_fault(pid: int) -> bool:
    """Whether a process's main thread waits for memory: blocked, but not in a system call (proc(5)).

    Only if several looks in a row find it so: each program has short faults. False where that cannot be read.
    """
    for check in range(_PAGE_FAULT_CHECKS):
        if check:
            time.sleep(_PAGE_FAULT_CHECK_SECONDS)
        try:
            with open(f"/proc/{pid}/syscall", "rb", buffering=0) as file:
                if not file.read(64).startswith(b"-1 "):
                    return False
        except OSError:
            return False
    return True


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


ELSEWHERE = "in another PID namespace, or exited"
"""Why nothing can be read about a pid that ``/proc`` does not have."""
HIDDEN = "hidden from this user: /proc is mounted with "
"""The option follows: ``hidepid=2``."""
_NOTHING_HIDDEN = ("0", "off")


def hiding_option(proc: str = "/proc") -> str:
    """The option with which ``/proc`` hides processes of other users, ``hidepid=2``; empty where it hides none."""
    option = ""
    try:
        with open(f"{proc}/self/mountinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                mount, _, filesystem = line.partition(" - ")
                fields, filesystem_fields = mount.split(), filesystem.split()
                if (
                    len(fields) > 4
                    and fields[4] == "/proc"
                    and len(filesystem_fields) > 2
                    and filesystem_fields[0] == "proc"
                ):
                    # A later mount covers the earlier ones.
                    options = [entry for entry in filesystem_fields[2].split(",") if entry.startswith("hidepid=")]
                    option = next((entry for entry in options if entry.partition("=")[2] not in _NOTHING_HIDDEN), "")
    except OSError:
        return ""
    return option


def process_exists(pid: int) -> bool:
    """Whether the process exists. Signal 0 reaches all in this PID namespace, even those that ``/proc`` hides."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
