"""A probe's process: drains its three pipes, enforces the deadline, and kills everything that it started.

Events have a pipe of their own, because native code writes partial lines to stdout and stderr. The process leads its
own session, so that its children can be killed with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.model.run import Outcome
from gpuwatch.experiment.probing.stream_reader import LineSplitter, Sink, StreamReader

if TYPE_CHECKING:
    from gpuwatch.experiment.probing.fork_server import ForkedProbe

_GRACE_SECONDS = 2.0
"""Seconds between SIGTERM and SIGKILL, and to read the rest of the output after the end."""


Launch = Callable[[int, int, int], "subprocess.Popen[bytes] | ForkedProbe"]
"""Starts the process with descriptors for events, stdout and stderr."""


def launch_fresh(command: Sequence[str], environment: Mapping[str, str]) -> Launch:
    """Starts ``command`` as a new process in a session of its own."""

    def launch(event_fd: int, stdout_fd: int, stderr_fd: int) -> subprocess.Popen[bytes]:
        os.set_inheritable(event_fd, True)
        try:
            return subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=stdout_fd,
                stderr=stderr_fd,
                env={**environment, "GPUWATCH_EVENT_FD": str(event_fd)},
                pass_fds=(event_fd,),
                start_new_session=True,
            )
        except OSError as error:
            raise GpuwatchError(f"{command[0]} cannot be started: {error.strerror}") from error

    return launch


class ProbeProcess:
    """Starts a process and passes its output to sinks until it ends or the deadline passes."""

    def __init__(self, launch: Launch, *, on_event: Sink, on_log: Sink) -> None:
        pipes = [os.pipe() for _ in range(3)]
        try:
            self._process = launch(*(write for _, write in pipes))
        except BaseException:
            for read, _ in pipes:
                os.close(read)
            raise
        finally:
            for _, write in pipes:
                os.close(write)
        self.pid = self._process.pid
        self._reads = [read for read, _ in pipes]
        self._streams = StreamReader()
        self._lines = [LineSplitter(sink) for sink in (on_event, on_log, on_log)]
        for descriptor, lines in zip(self._reads, self._lines, strict=True):
            self._streams.add(descriptor, lines.feed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill_group(signal.SIGKILL)
        self._process.wait()
        self._streams.close()
        for descriptor in self._reads:
            os.close(descriptor)

    def run_to_end(self, deadline: float, while_waiting: Callable[[], None] | None = None) -> Outcome:
        """Reads until the process has ended, or kills it after ``deadline`` seconds.

        ``while_waiting`` is called at least ten times a second. ``Outcome.ended`` (whether the last event came) is left
        to the caller.
        """
        ends_at = time.monotonic() + deadline
        timed_out = False
        while self._process.poll() is None:
            remaining = ends_at - time.monotonic()
            if remaining <= 0:
                timed_out = True
                self._terminate()
                break
            self._streams.drain(min(0.1, remaining))
            if while_waiting is not None:
                while_waiting()
        # Read the rest; do not wait for a grandchild that keeps the pipes open.
        self._kill_group(signal.SIGKILL)
        ends_at = time.monotonic() + _GRACE_SECONDS
        while len(self._streams) and time.monotonic() < ends_at:
            self._streams.drain(0.05)
        for lines in self._lines:
            lines.close()
        code = self._process.wait()
        return Outcome(exit_code=code if code >= 0 else None, signal=-code if code < 0 else None, timed_out=timed_out)

    def _terminate(self) -> None:
        self._kill_group(signal.SIGTERM)
        ends_at = time.monotonic() + _GRACE_SECONDS
        while self._process.poll() is None and time.monotonic() < ends_at:
            self._streams.drain(0.05)
        self._kill_group(signal.SIGKILL)

    def _kill_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # gone already
            os.killpg(self.pid, number)
