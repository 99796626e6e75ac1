"""Details of one process for its page: environment, interpreter, ancestors and descendants."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec

from gpuwatch.machine.sources.process_signals import why_another_process
from gpuwatch.machine.sources.procfs import FIRST_PID, ProcessStat, lineage, pids, process_stat

_MAX_DESCENDANTS = 60
_T = TypeVar("_T")


class Relative(msgspec.Struct, frozen=True):
    """An ancestor or descendant, ``depth`` generations away."""

    pid: int
    depth: int
    command: str


class ProcessDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Details of one process, read only while its page is open; not stored anywhere."""

    problem: str = ""
    """Why nothing could be read; empty otherwise."""
    environment: dict[str, str] | None = None
    """The environment at the program's start, with its secrets: mask it before showing it."""
    interpreter: str | None = None
    inner_pid: int | None = None
    """Its pid in its own PID namespace, where that is a different one."""
    parents: tuple[Relative, ...] = ()
    """Nearest first."""
    children: tuple[Relative, ...] = ()
    """All descendants, each after its parent."""
    why: dict[str, str] = {}
    """Field to the reason why it could not be read."""


def read_process_details(pid: int, create_time: float | None, *, proc: str = "/proc") -> ProcessDetails:
    """Details of ``pid`` if it is still the process that began at ``create_time``."""
    if create_time is None:
        return ProcessDetails(problem="it is not visible here: another PID namespace, or it has exited")
    found = why_another_process(pid, create_time, proc=proc)
    if found is not None:
        return ProcessDetails(problem=found.reason)
    base = Path(proc, str(pid))
    why: dict[str, str] = {}
    content = _read_or_why(lambda: (base / "environ").read_bytes(), "environment", why)
    pairs = [part.decode("utf-8", "replace").partition("=") for part in (content or b"").split(b"\0") if b"=" in part]
    status = _read_or_why((base / "status").read_bytes, "status", why) or b""
    namespace_pid = re.search(rb"^NSpid:.*?(\d+)$", status, re.MULTILINE)
    stats = {number: stat for number in pids(proc) if (stat := process_stat(number, proc)) is not None}
    result = ProcessDetails(
        environment=None if content is None else {name: value for name, _, value in pairs},
        interpreter=_read_or_why(lambda: str((base / "exe").readlink()), "interpreter", why),
        inner_pid=int(namespace_pid[1]) if namespace_pid is not None and int(namespace_pid[1]) != pid else None,
        parents=tuple(_ancestors(pid, stats, proc)),
        children=tuple(islice(_descendants(pid, stats, proc), _MAX_DESCENDANTS)),
        why=why,
    )
    # If it is still the same process now, everything that was read belongs to it.
    ended = why_another_process(pid, create_time, proc=proc)
    return result if ended is None else ProcessDetails(problem=ended.reason)


def _read_or_why(read: Callable[[], _T], what: str, why: dict[str, str]) -> _T | None:
    try:
        return read()
    except OSError as error:
        why[what] = error.strerror or str(error)
        if isinstance(error, PermissionError):
            why[what] = "permission denied (another user's process, or the kernel hides it)"
        return None


def _relative(pid: int, depth: int, stat: ProcessStat, proc: str) -> Relative:
    name = stat.name.decode("utf-8", "replace")
    if pid == FIRST_PID:
        return Relative(pid, depth, name)  # in containers its command line is often a whole script
    content = _read_or_why(Path(proc, str(pid), "cmdline").read_bytes, "", {}) or b""
    return Relative(pid, depth, content.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace") or f"[{name}]")


def _ancestors(pid: int, stats: dict[int, ProcessStat], proc: str) -> Iterator[Relative]:
    for depth, above in enumerate(lineage(pid, lambda child: stats[child].parent if child in stats else 0)):
        if depth and above in stats:
            yield _relative(above, depth, stats[above], proc)


def _descendants(pid: int, stats: dict[int, ProcessStat], proc: str, depth: int = 1) -> Iterator[Relative]:
    for child in sorted(number for number, stat in stats.items() if stat.parent == pid):
        yield _relative(child, depth, stats[child], proc)
        if depth < _MAX_DESCENDANTS:
            yield from _descendants(child, stats, proc, depth + 1)
