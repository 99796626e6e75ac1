"""Starts the first collector as a fork of this process, which saves the start of an interpreter.

Forking is safe only at the program's start, while there is one thread and the driver is not loaded; later collectors
are new processes. This module imports next to nothing: the child imports what it needs while the parent imports
something else.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import BinaryIO

SAMPLE_GAP_SECONDS = 0.25
"""Seconds between the two samples of a snapshot: CPU and rates need two."""


class ForkedProcess:
    """The child process, with the part of :class:`subprocess.Popen` that :class:`.live_feed.LiveFeed` uses."""

    def __init__(self, pid: int, stdin: BinaryIO, stdout: BinaryIO, page: int | None) -> None:
        """``page``: the descriptor of the page that it shares (``driver_call_tracking.CallPage``)."""
        self.page = page
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, 0  # it has been waited for elsewhere
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """The exit code; :class:`subprocess.TimeoutExpired` after ``timeout`` seconds."""
        from subprocess import TimeoutExpired

        if self.poll() is None:
            try:
                descriptor = os.pidfd_open(self.pid)
            except (OSError, AttributeError):  # Linux before 5.3, a sandbox, or a Python built for an older system
                self._poll_for(timeout)
            else:
                try:
                    select.select([descriptor], [], [], timeout)
                finally:
                    os.close(descriptor)
        code = self.poll()
        if code is None:
            raise TimeoutExpired("collector", timeout)
        return code

    def _poll_for(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        while self.poll() is None and (remaining := end - time.monotonic()) > 0:
            time.sleep(min(0.01, remaining))

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def fork_collector(interval: float, *, share: bool = False, on_demand: bool = False) -> ForkedProcess:
    """Starts a collector that samples every ``interval`` seconds. OSError if the system cannot fork.

    ``share``: its samples may be those of a recorder on this machine. ``on_demand``: see
    :class:`.protocol.Settings`.
    """
    from gpuwatch.machine.sources.driver_call_tracking import new_page

    commands, frames = os.pipe(), os.pipe()
    page: int | None
    try:
        page = new_page()
    except OSError:
        page = None
    pid = os.fork()
    if pid == 0:
        try:
            _child(commands[0], frames[1], page, interval, on_demand=on_demand, share=share)
        finally:
            os._exit(1)
    os.close(commands[0])
    os.close(frames[1])
    return ForkedProcess(pid, os.fdopen(commands[1], "wb"), os.fdopen(frames[0], "rb"), page)


def _child(commands: int, frames: int, page: int | None, interval: float, *, on_demand: bool, share: bool) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    os.dup2(commands, 0)
    os.dup2(frames, 1)
    if not os.environ.get("GPUWATCH_DEBUG"):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    if page is not None:
        os.dup2(page, 3)
        page = 3
    os.closerange(3 if page is None else 4, 64)
    from gpuwatch.machine.collector.collector_process import serve
    from gpuwatch.machine.collector.protocol import Settings

    code = 1
    try:
        serve(Settings(interval, on_demand, share=share, page=page))
        code = 0
    finally:
        # This copy of the dashboard's process must never return into the dashboard's code.
        os._exit(code)
