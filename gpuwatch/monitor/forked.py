"""A collector's process without an interpreter of its own to start: a fork of this one while it is small.

Only the very first collector comes about this way. Forking is safe while there is one thread and the
driver is not loaded, which is so at the start of the program alone; a collector that has to be replaced
is a fresh process. This module imports next to nothing: what the child needs it imports itself, while
the parent imports something else.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import BinaryIO


class Forked:
    """The child, with as much of :class:`subprocess.Popen` as :class:`~gpuwatch.monitor.collector.Collector` uses."""

    def __init__(self, pid: int, stdin: BinaryIO, stdout: BinaryIO) -> None:
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
                pid, status = self.pid, 0  # somebody else has collected it
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """The exit code; :class:`subprocess.TimeoutExpired` after ``timeout`` seconds."""
        from subprocess import TimeoutExpired

        if self.poll() is None:
            descriptor = os.pidfd_open(self.pid)
            try:
                select.select([descriptor], [], [], timeout)
            finally:
                os.close(descriptor)
        code = self.poll()
        if code is None:
            raise TimeoutExpired("collector", timeout)
        return code

    def kill(self) -> None:
        """Sends SIGKILL; nothing when it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def fork(interval: float) -> Forked:
    """Starts a collector that samples every ``interval`` seconds. OSError when the system refuses."""
    commands, frames = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _child(commands[0], frames[1], interval)
        finally:
            os._exit(1)
    os.close(commands[0])
    os.close(frames[1])
    return Forked(pid, os.fdopen(commands[1], "wb"), os.fdopen(frames[0], "rb"))


def _child(commands: int, frames: int, interval: float) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    os.dup2(commands, 0)
    os.dup2(frames, 1)
    debug = bool(os.environ.get("GPUWATCH_DEBUG"))
    if not debug:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.closerange(3, 64)
    from gpuwatch.monitor.worker import serve

    code = 1
    try:
        serve(interval, False)
        code = 0
    except Exception:  # noqa: BLE001  # the dashboard says that the collector ended by itself
        if debug:
            sys.excepthook(*sys.exc_info())
    finally:
        # Nothing may go on into the code of the dashboard, whose copy this process is.
        os._exit(code)
