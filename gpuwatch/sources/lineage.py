"""Which process descends from which, and whom the kernel killed for want of memory: from /proc and cgroups.

Sources: ``proc(5)`` (``status``: Tgid, PPid, NSpid; ``vmstat``: oom_kill since Linux 4.13) and the kernel's
``cgroup-v2.rst`` (``memory.events``: oom_kill) and ``cgroup-v1/memory.rst`` (``memory.oom_control``).
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class OomKills(msgspec.Struct, frozen=True):
    """Counters of the kernel's OOM killer; None for one that cannot be read here."""

    cgroup: int | None = None
    """In our control group and below."""
    machine: int | None = None
    limit_bytes: int | None = None
    """The control group's memory limit."""


def leader_of(thread: int, proc: str = "/proc") -> int | None:
    """The process that a thread belongs to; None when it is gone."""
    return _status(thread, proc)[0]


def descends(pid: int, ancestor: int, proc: str = "/proc") -> bool:
    """Whether ``pid`` is ``ancestor`` or one of its descendants; False when it is gone."""
    seen = set()
    at: int | None = pid
    while at and at not in seen:
        if at == ancestor:
            return True
        seen.add(at)
        at = _status(at, proc)[1]
    return False


def oom_kills(root: str | Path = "/") -> OomKills:
    """The counters now; two readings tell whether somebody was killed in between."""
    base = Path(root)
    machine = None
    for line in _lines(base / "proc/vmstat"):
        if line.startswith("oom_kill "):
            machine = _number(line.split()[1])
    for line in _lines(base / "proc/self/cgroup"):
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers == "":
            folder, counter, limit = base / "sys/fs/cgroup" / path.lstrip("/"), "memory.events", "memory.max"
        elif "memory" in controllers.split(","):
            folder = base / "sys/fs/cgroup/memory" / path.lstrip("/")
            counter, limit = "memory.oom_control", "memory.limit_in_bytes"
        else:
            continue
        for line in _lines(folder / counter):
            if line.startswith("oom_kill "):
                most = _number("".join(_lines(folder / limit)).strip())
                # cgroup v1 writes "no limit" as the largest multiple of a page.
                return OomKills(_number(line.split()[1]), machine, None if most is None or most >= 1 << 62 else most)
    return OomKills(None, machine)


def _status(pid: int, proc: str) -> tuple[int | None, int | None]:
    """Thread group and parent."""
    leader = parent = None
    for line in _lines(Path(proc) / str(pid) / "status"):
        name, _, value = line.partition(":")
        if name == "Tgid":
            leader = _number(value.strip())
        elif name == "PPid":
            parent = _number(value.strip())
            break
    return leader, parent


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None
