"""The collector's process as its parent sees it: its frames, what it is doing, and how it ends.

It calls the driver or waits for a CPU. Calls that crashed or hung are left out by its successor.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from gpuwatch.machine.collector.forked_collector import ForkedProcess
from gpuwatch.machine.history.sample_frames import read_frame
from gpuwatch.machine.sources import procfs
from gpuwatch.machine.sources.driver_call_tracking import Call, CallPage, LeftOut

CollectorProcess = subprocess.Popen[bytes] | ForkedProcess
CRASH_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
"""Signals by which a crash of the driver's library ends it."""
HANG_SECONDS = 4.0
"""Seconds after which one call hangs. Slow drivers take one or two."""
LATE_CHECK_SECONDS = 1.0
"""Seconds between checks of a process that is late."""
_FIRST_CHECK_SECONDS = 2.0
"""Seconds that count for a call at its first check: before that, the whole machine may have been stopped."""
_SESSION_CALLS = ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex")
"""Without these there is no GPU. They may take many seconds where the driver has to be loaded."""
_MAX_LEFT_OUT_AT_ONCE = 3
"""Calls that may hang or crash one after another; with more it is the driver as a whole."""
_FIRST_PAUSE_SECONDS = 60.0
_MAX_PAUSE_SECONDS = 3600.0


def read_frames(process: CollectorProcess) -> Iterator[tuple[bytes, bytes]]:
    """Kind and body of each frame until the process exits."""
    stream = process.stdout
    assert stream is not None
    while (frame := read_frame(stream)) is not None:
        yield frame


def end_process(process: CollectorProcess) -> None:
    """Closes the process's stdin, then kills it; a process that hangs inside the driver is left to the kernel."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(timeout=0.1)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)


def wait_for_exit_code(process: CollectorProcess) -> int | None:
    """The exit code of a process whose output has ended; None if it is still running."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=0.2)  # its output ends a moment before the process does
    return process.poll()


def ending_text(code: int | None) -> str:
    """How the process ended; completes "the collector …"."""
    if code is None:
        return "closed its output"
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:  # a real-time signal has no name
            return f"was killed by signal {-code}"
    return f"exited with code {code}"


class _CallCheck(NamedTuple):
    """A call that was under way when its process was checked, and that process's times so far."""

    call: Call
    at: float
    """Seconds of the monotonic clock."""
    run_seconds: float
    cpu_wait_seconds: float
    """For which it waited for a CPU."""
    stuck_seconds: float
    """For which it has been in this call without running, although it could have run."""
    major_faults: int
    """Pages from the disk so far."""
    paging: bool
    """Pages have come since the check before: it goes on, at the disk's pace. A check can fall between two of them."""


class CollectorWatch:
    """Watches one collector's process: what it delivers, and how long it has been in a call into the driver."""

    def __init__(self, pid: int, page: CallPage | None) -> None:
        self._pid = pid
        self.page = page
        self._last_check: _CallCheck | None
        self.note_delivery()

    def note_delivery(self) -> None:
        """Called when it has delivered something: it is not late any more."""
        self._delivered_at, self._last_check = time.monotonic(), None
        self._cpu_wait_before = procfs.cpu_times(self._pid)[1]

    @property
    def call(self) -> Call | None:
        """The call into the driver that is under way, or was at its end."""
        page = self.page
        try:
            return None if page is None else page.call
        except ValueError:  # closed by another thread just now
            return None

    @property
    def cpu_wait_seconds(self) -> float:
        """Seconds since its last delivery in which it waited for a CPU: the driver is not to blame for them."""
        return max(procfs.cpu_times(self._pid)[1] - self._cpu_wait_before, 0.0)

    def find_hung_call(self) -> Call | None:
        """Checks it, once a second while it is late: the call that hangs; None for those that may take long.

        Only seconds count in which it was in that call, did not run, and could have.
        """
        check = self._last_check = self._next_check()
        if check is None or check.stuck_seconds < HANG_SECONDS or check.call.name.startswith(_SESSION_CALLS):
            return None
        return check.call

    def _next_check(self) -> _CallCheck | None:
        call, before = self.call, self._last_check
        if call is None:
            return None
        now, state = time.monotonic(), procfs.state(self._pid)
        run_seconds, cpu_wait_seconds = procfs.cpu_times(self._pid)
        major_faults, paging = procfs.major_faults(self._pid), False
        if before is None or before.call != call:
            stuck, added = 0.0, min(now - call.since, _FIRST_CHECK_SECONDS) - (cpu_wait_seconds - self._cpu_wait_before)
        else:
            stuck, seconds = before.stuck_seconds, min(now - before.at, 1.5 * LATE_CHECK_SECONDS)
            added = seconds - (cpu_wait_seconds - before.cpu_wait_seconds)
            paging = major_faults > before.major_faults
            if state == b"R" and run_seconds:
                added = min(added, run_seconds - before.run_seconds)  # a virtual machine's CPU may stand still
        if paging or state in procfs.STOPPED or procfs.in_page_fault(self._pid):
            stuck = added = 0.0
        return _CallCheck(call, now, run_seconds, cpu_wait_seconds, stuck + max(added, 0.0), major_faults, paging)

    def collector_fault(self) -> str:
        """What is wrong with the living process; completes "the collector …". Empty: it waits for the driver."""
        if self.cpu_wait_seconds > (time.monotonic() - self._delivered_at) / 2:
            return "waits for a CPU: the machine is busy"
        if (self._last_check is not None and self._last_check.paging) or procfs.in_page_fault(self._pid):
            return "waits for memory: the machine is busy"
        return "is not waiting for the driver" if self.page is not None and self.call is None else ""

    def pending_call_text(self) -> str:
        """``nvmlDeviceGetUUID has not returned since 10:02:31``; empty if that is not known."""
        call = self.call
        if call is None:
            return ""
        began = time.localtime(time.time() - (time.monotonic() - call.since))
        return f"{call.name} has not returned since {time.strftime('%H:%M:%S', began)}"

    def close(self) -> None:
        """Releases the shared page after the process has ended."""
        page, self.page = self.page, None
        if page is not None:
            page.close()


class SuspectCalls:
    """Calls that took a collector down. Each is tried again, after longer and longer pauses."""

    def __init__(self) -> None:
        self.left_out: dict[str, LeftOut] = {}
        """By the call's name, for the next collector."""
        self._failures: dict[str, int] = {}
        self._since_last_sample: list[str] = []
        """Names of calls that were left out since the last sample."""

    def leave_out(self, name: str, failure: str) -> bool:
        """Leaves a call out, and says whether that can help; otherwise the driver as a whole does not work."""
        if name.startswith(_SESSION_CALLS) or len(self._since_last_sample) >= _MAX_LEFT_OUT_AT_ONCE:
            self.forget_latest()
            return False
        self._since_last_sample.append(name)
        self._failures[name] = self._failures.get(name, 0) + 1
        pause = min(_FIRST_PAUSE_SECONDS * 2 ** min(self._failures[name] - 1, 10), _MAX_PAUSE_SECONDS)
        again = time.strftime("%H:%M:%S", time.localtime(time.time() + pause))
        why = f"it {failure} at {time.strftime('%H:%M:%S')}, and is left out until {again}"
        self.left_out[name] = LeftOut(why, time.monotonic() + pause)
        return True

    def forget_latest(self) -> None:
        """Called when the driver as a whole did not work: no call since the last sample is to blame."""
        for name in self._since_last_sample:
            self.left_out.pop(name, None)
        self._since_last_sample.clear()

    def note_sample(self) -> None:
        """Called when a sample came: what is left out now was to blame."""
        self._since_last_sample.clear()
