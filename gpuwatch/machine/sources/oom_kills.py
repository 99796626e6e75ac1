"""Processes that the kernel's OOM killer ended for lack of host memory: counters of /proc and cgroups, kernel log.

Sources: ``proc(5)`` (``vmstat``: oom_kill since Linux 4.13) and the kernel's ``cgroup-v2.rst`` (``memory.events``:
oom_kill) and ``cgroup-v1/memory.rst`` (``memory.oom_control``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

import msgspec

from gpuwatch.core.parsing import parse_integer
from gpuwatch.machine.sources.procfs import file_text

_KILLED = re.compile(r"Killed process (\d{1,10})\b")
_MAX_LOG_RECORDS = 100_000


class OomKills(msgspec.Struct, frozen=True):
    """Counters of the kernel's OOM killer; None for one that cannot be read."""

    cgroup: int | None = None
    """OOM kills in this process's control group and below."""
    machine: int | None = None
    limit_bytes: int | None = None
    """The control group's memory limit."""


def read_oom_kills(root: str | Path = "/") -> OomKills:
    """The current counters; the difference of two readings is the number of kills in between."""
    root_path = Path(root)
    machine = None
    for line in _lines(root_path / "proc/vmstat"):
        if line.startswith("oom_kill "):
            machine = parse_integer(line[9:].strip())
    for line in _lines(root_path / "proc/self/cgroup"):
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers == "":
            folder, counter, limit = root_path / "sys/fs/cgroup" / path.lstrip("/"), "memory.events", "memory.max"
        elif "memory" in controllers.split(","):
            folder = root_path / "sys/fs/cgroup/memory" / path.lstrip("/")
            counter, limit = "memory.oom_control", "memory.limit_in_bytes"
        else:
            continue
        for line in _lines(folder / counter):
            if line.startswith("oom_kill "):
                limit_bytes = parse_integer("".join(_lines(folder / limit)).strip())
                # cgroup v1 writes "no limit" as the largest multiple of a page.
                return OomKills(
                    parse_integer(line[9:].strip()),
                    machine,
                    None if limit_bytes is None or limit_bytes >= 1 << 62 else limit_bytes,
                )
    return OomKills(None, machine)


def find_kernel_log_line(pids: Collection[int], path: str | Path = "/dev/kmsg") -> str:
    """The kernel's log line about the OOM kill of one of these processes; empty if there is none.

    Source: ``dev-kmsg`` (Documentation/ABI/testing): one record per read, ``prio,seq,time,flags;text``. Many machines
    let only root read it (``kernel.dmesg_restrict``).
    """
    try:
        log = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    found = ""
    try:
        for _ in range(_MAX_LOG_RECORDS):
            try:
                record = os.read(log, 8192)
            except BrokenPipeError:
                continue  # this record was overwritten; the next read returns the following one
            if not record:
                break
            for line in record.decode("utf-8", "replace").splitlines():
                match = _KILLED.search(line)
                if match is not None and int(match[1]) in pids:
                    found = line.partition(";")[2].strip() or line.strip()
    except OSError:  # EAGAIN: no more records
        pass
    finally:
        os.close(log)
    return found


def _lines(path: Path) -> list[str]:
    return (file_text(path) or "").splitlines()
