"""Sends signals only to the process that the user chose, even if its pid was reused.

A signal goes through a pidfd, which stays with the process that it was opened for. The start time is compared after
opening, so the pid cannot be reused between check and signal. On kernels without pidfds (before Linux 5.3) the check
comes directly before the signal.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Literal

from gpuwatch.machine.sources.procfs import FIRST_PID, TICKS, boot_time, process_stat

State = Literal["delivered", "gone", "reused", "denied"]

_CLOCK_SHIFT_SECONDS = 1
"""Seconds by which the boot time may have shifted since the process was first seen."""


@dataclass(frozen=True, slots=True)
class SignalResult:
    """The result of sending a signal; ``reason`` is empty only for ``delivered``."""

    state: State
    reason: str = ""


_GONE = SignalResult("gone", "it has already exited")


def why_refused(pid: int, create_time: float | None) -> str:
    """Why no signal may be sent to this process; empty if one may."""
    if create_time is None:
        return "its start time cannot be read: another PID namespace, or it has exited"
    if pid <= FIRST_PID:
        return "pid 1 keeps the system or the container running"
    return ""


def send_signal(pid: int, create_time: float | None, number: int) -> SignalResult:
    """Sends signal ``number`` to ``pid`` if it is still the process that started at ``create_time`` (epoch seconds)."""
    why = why_refused(pid, create_time)
    if why or create_time is None:
        return SignalResult("denied", why)
    try:
        pidfd = _open_pidfd(pid)
        try:
            refusal = why_another_process(pid, create_time)
            if refusal is not None:
                return refusal
            if pidfd is None:
                os.kill(pid, number)
            else:
                signal.pidfd_send_signal(pidfd, number)
        finally:
            if pidfd is not None:
                os.close(pidfd)
    except ProcessLookupError:
        return _GONE
    except PermissionError:
        return SignalResult("denied", "it belongs to another user")
    except OSError as error:
        return SignalResult("denied", f"the kernel refused: {error.strerror or error}")
    return SignalResult("delivered")


def _open_pidfd(pid: int) -> int | None:
    """A pidfd of the process; None if the kernel has no pidfds or a sandbox forbids them."""
    if not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None


def why_another_process(pid: int, create_time: float, *, proc: str = "/proc") -> SignalResult | None:
    """None if ``pid`` is still the process that started at ``create_time``; otherwise why not."""
    stat = process_stat(pid, proc)
    if stat is None:
        return SignalResult("gone", "it is no longer in /proc")
    difference = boot_time(proc) + stat.start_ticks / TICKS - create_time
    # The boot time is in whole seconds and shifts when the clock is set; the start ticks do not.
    if abs(difference) > _CLOCK_SHIFT_SECONDS + 0.5 or abs(difference - round(difference)) > 0.6 / TICKS:
        return SignalResult("reused", "this pid belongs to another process now")
    if stat.state in (b"Z", b"X"):
        return SignalResult("gone", "it has exited; its parent has not waited for it yet")
    return None
