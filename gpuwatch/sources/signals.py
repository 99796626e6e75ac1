"""Signals to processes, sent only to the process that was meant.

A pid alone names whoever has it now. A signal goes through a pidfd, which stays with the process that
it was opened for: its start is compared after opening, so no reuse can slip between check and signal.
Where the kernel has no pidfds (before Linux 5.3) the check comes directly before the signal.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

State = Literal["delivered", "gone", "reused", "denied"]

_TICKS = os.sysconf("SC_CLK_TCK")
_CLOCK_SET = 1
"""Seconds by which the kernel's boot time may have moved since the process was first seen."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a signal; ``reason`` in words for all but ``delivered``."""

    state: State
    reason: str = ""


_GONE = Outcome("gone", "it has ended already")


def refusal(pid: int, create_time: float | None) -> str:
    """Why a signal to this process is not even tried; empty when nothing speaks against it."""
    if create_time is None:
        return "its start time cannot be read: another PID namespace, or it has ended"
    if pid <= 1:
        return "pid 1 holds up the system, or the container"
    return ""


def send(pid: int, create_time: float | None, number: int, *, proc: str = "/proc") -> Outcome:
    """Sends signal ``number`` to ``pid`` if it is still the process that began at ``create_time``."""
    why = refusal(pid, create_time)
    if why or create_time is None:
        return Outcome("denied", why)
    try:
        handle = _open(pid)
        try:
            found = compare(pid, create_time, proc=proc)
            if found is not None:
                return found
            if handle is None:
                os.kill(pid, number)
            else:
                signal.pidfd_send_signal(handle, number)
        finally:
            if handle is not None:
                os.close(handle)
    except ProcessLookupError:
        return _GONE
    except PermissionError:
        return Outcome("denied", "it belongs to another user")
    except OSError as error:
        return Outcome("denied", f"the kernel refused: {error.strerror or error}")
    return Outcome("delivered")


def _open(pid: int) -> int | None:
    """A handle of the process; None where the kernel has none to give, or a sandbox forbids it."""
    if not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None


def compare(pid: int, create_time: float, *, proc: str = "/proc") -> Outcome | None:
    """None when ``pid`` is the process that is meant; else what it is instead."""
    try:
        # The name may hold spaces and parentheses: the last one ends it.
        fields = Path(proc, str(pid), "stat").read_bytes().rpartition(b")")[2].split()
        with Path(proc, "stat").open("rb") as file:
            boot = next(int(line.split()[1]) for line in file if line.startswith(b"btime "))
        begun = boot + int(fields[19]) / _TICKS
    except (OSError, IndexError, ValueError, StopIteration):
        return Outcome("gone", "it cannot be found in /proc any more")
    apart = begun - create_time
    # Boot time comes in whole seconds and moves when the clock is set; the ticks of a start do not.
    if abs(apart) > _CLOCK_SET + 0.5 or abs(apart - round(apart)) > 0.6 / _TICKS:
        return Outcome("reused", "this pid belongs to another process now")
    if fields[0] in (b"Z", b"X"):
        return Outcome("gone", "it has ended; its parent has not collected it yet")
    return None
