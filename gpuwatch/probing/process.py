"""A probe's process: three pipes that are always drained, a deadline, and an end that leaves nothing.

Events come on a descriptor of their own, because native code writes half lines to stdout and
stderr. The process leads its own session, so that whatever it started dies with it.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from gpuwatch.errors import GpuwatchError
from gpuwatch.model.run import Outcome

_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL, and for output of a process that has ended."""
_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 16

LineSink = Callable[[bytes], None]


class Lines:
    """Cuts a byte stream into lines; a line without end is cut too, so that memory stays bounded."""

    def __init__(self, sink: LineSink) -> None:
        self._sink = sink
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        """Takes bytes as they come."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._sink(line)
        if len(self._rest) > _LONGEST_LINE:
            self._sink(self._rest)
            self._rest = b""

    def close(self) -> None:
        """Gives out what has no newline."""
        if self._rest:
            self._sink(self._rest)
            self._rest = b""


class Child(Protocol):
    """A started process: a :class:`subprocess.Popen`, or a fork of a template."""

    pid: int

    def poll(self) -> int | None:
        """Exit code (negative: signal) when it has ended, else None."""
        ...

    def wait(self) -> int:
        """Its exit code; it has been killed by then."""
        ...


Launch = Callable[[int, int, int], Child]
"""Starts the process with descriptors for events, stdout and stderr."""


def launch_fresh(command: Sequence[str], environment: Mapping[str, str]) -> Launch:
    """Starts ``command`` as a new process in a session of its own."""

    def launch(events: int, out: int, err: int) -> Child:
        os.set_inheritable(events, True)
        try:
            return subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**environment, "GPUWATCH_EVENT_FD": str(events)},
                pass_fds=(events,),
                start_new_session=True,
            )
        except OSError as error:
            raise GpuwatchError(f"{command[0]} cannot be started: {error.strerror}") from error

    return launch


class ProbeProcess:
    """Starts a process and pumps its output into sinks until it ends or the deadline passes."""

    def __init__(self, launch: Launch, *, on_event: LineSink, on_log: LineSink) -> None:
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
        self._selector = selectors.DefaultSelector()
        for descriptor, sink in zip(self._reads, (on_event, on_log, on_log), strict=True):
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ, Lines(sink))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill_group(signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        for descriptor in self._reads:
            os.close(descriptor)

    def pump(self, deadline: float, between: Callable[[], None] | None = None) -> Outcome:
        """Runs until the process has ended, ``deadline`` seconds at most.

        ``between`` is called at least ten times a second. Returns how it ended; ``ended`` (whether
        the last event came) is for the caller to fill in, who knows the events.
        """
        until = time.monotonic() + deadline
        timed_out = False
        while self._process.poll() is None:
            left = until - time.monotonic()
            if left <= 0:
                timed_out = True
                self._terminate()
                break
            self._drain(min(0.1, left))
            if between is not None:
                between()
        # What is still in the pipes; a grandchild that keeps them open does not hold us up.
        self._kill_group(signal.SIGKILL)
        until = time.monotonic() + _GRACE
        while self._selector.get_map() and time.monotonic() < until:
            if not self._drain(0.05) and not self._open_elsewhere():
                break
        for key in list(self._selector.get_map().values()):
            key.data.close()
        code = self._process.wait()
        return Outcome(exit_code=code if code >= 0 else None, signal=-code if code < 0 else None, timed_out=timed_out)

    def _open_elsewhere(self) -> bool:
        """Whether anybody may still write: descriptors that reached their end are unregistered."""
        return bool(self._selector.get_map())

    def _drain(self, timeout: float) -> bool:
        got = False
        if not self._selector.get_map():
            time.sleep(min(timeout, 0.005))
            return False
        for key, _ in self._selector.select(timeout):
            try:
                chunk = os.read(key.fd, _CHUNK)
            except BlockingIOError:
                continue
            got = True
            if chunk:
                key.data.feed(chunk)
            else:
                key.data.close()
                self._selector.unregister(key.fd)
        return got

    def _terminate(self) -> None:
        self._kill_group(signal.SIGTERM)
        until = time.monotonic() + _GRACE
        while self._process.poll() is None and time.monotonic() < until:
            self._drain(0.05)
        self._kill_group(signal.SIGKILL)

    def _kill_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # gone already
            os.killpg(self.pid, number)
