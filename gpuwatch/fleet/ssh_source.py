"""Hosts over ssh, with nothing on them but gpuwatch: all of them for the list, and one as a feed.

``gpuwatch snapshot --json --every`` runs there, started over ssh, and again if it ends. JSON lines rather than the
collector's own frames: the document has a published schema, so hosts with another version can be read, and its secrets
are masked before they leave the host.
"""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO

from gpuwatch.core import input_size_limits
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.model.fleet import Fleet, HostView
from gpuwatch.core.model.json_codec import NotADocument, from_json
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.safe_text import last_line, printable, shorten
from gpuwatch.fleet.fleet_source import FleetSource, HostFeed, ReaderThread
from gpuwatch.fleet.ssh_command import SSH_FAILED_EXIT_CODE, ssh_command, ssh_failure

CONNECTING = "connecting…"
DEFAULT_COMMAND = ("gpuwatch",)
"""How gpuwatch is called on a host."""
_COALESCE_SECONDS = 0.3
"""Changes of several hosts within this time are shown together."""
_MAX_PARALLEL_CONNECTS = 32
"""Connections that are made at the same time."""
_FIRST_LINE_SECONDS = 45.0
"""How long a host has until its first line; to accept the connection: :data:`.ssh_command.CONNECT_SECONDS`."""
_SILENT_SECONDS, _RESTART_SECONDS = 10.0, 45.0
"""Seconds without a line, beyond two intervals, after which a host counts as silent, and is connected to again."""
_RETRY_DELAYS_SECONDS = (2.0, 5.0, 10.0, 20.0, 40.0, 60.0)
"""Seconds until the next try, after each failure."""
_READ_BYTES = 1 << 18
_MAX_MESSAGE_BYTES = 8192
_MAX_QUOTED_CHARS = 120
_NO_GPUWATCH = re.compile(r"not found|No such file or directory")
_TOO_OLD = re.compile(r"[Nn]o such option:? '?--every")


class HostConnection:
    """The connection to one host: its ``ssh`` process, the newest snapshot, and why there is no newer one."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.snapshot: Snapshot | None = None
        """The newest snapshot from this host."""
        self.reason = CONNECTING
        """Why there is no newer one; empty while they come."""
        self.sampled_at: float | None = None
        """When the newest snapshot came, by the monotonic clock."""
        self.line_at: float | None = None
        """When the last line came, also of a driver that does not answer."""
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.start_at = 0.0
        """When to start ``ssh``, if it does not run."""
        self.failures = 0
        self.stdout_rest = bytearray()
        """The start of a line of which the end has not arrived."""
        self.stderr_tail = bytearray()
        self.answered = False
        """Whether the running process has sent a line."""
        self.unreadable = ""
        """Why the last line could not be read."""


class SshConnections:
    """Connections to several hosts, read by one thread.

    ``on_change`` is called from that thread for a host that has new data or another reason. ``command``: how gpuwatch
    is called there; ``options``: further arguments of ``ssh``.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        interval: float,
        on_change: Callable[[HostConnection], None],
        command: Sequence[str],
        options: Sequence[str],
    ) -> None:
        self.interval = interval
        self._on_change = on_change
        self._command = tuple(command)
        self._options = tuple(options)
        self.connections = {host: HostConnection(host) for host in hosts}
        self._restart_at: float | None = None
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self.thread = ReaderThread("gpuwatch-hosts", self._run, self._report_failure)

    def set_interval(self, seconds: float) -> None:
        """Sets the seconds between the samples of a host; a change makes the connections again."""
        if seconds != self.interval:
            self.interval = seconds
            self._restart_at = time.monotonic() + 1.0  # more key presses may follow
            self._wake()

    def stop(self) -> None:
        self.thread.stopping.set()
        self._wake()
        self.thread.stop(3.0)

    # -- inside ---------------------------------------------------------------------------------

    def _wake(self) -> None:
        with suppress(OSError):
            os.write(self._wake_write, b".")

    def _report_failure(self) -> None:
        """Lets those who wait for a host ask again, and so find the failure."""
        for connection in self.connections.values():
            self._on_change(connection)

    def _run(self) -> None:
        try:
            while not self.thread.stopping.is_set():
                self._start_due()
                for key, _ in self._selector.select(0.25):
                    if key.data is None:
                        os.read(self._wake_read, 4096)
                    else:
                        self._read(*key.data)
                self._check_silence()
        finally:
            for connection in self.connections.values():
                self._kill(connection)
            self._selector.close()

    def _start_due(self) -> None:
        now, connections = time.monotonic(), self.connections.values()
        if self._restart_at is not None and now >= self._restart_at:
            self._restart_at = None
            for connection in connections:
                if connection.process is not None:
                    self._kill(connection)
                    connection.start_at = 0.0
        starting = sum(connection.process is not None and not connection.answered for connection in connections)
        for connection in connections:
            if starting >= _MAX_PARALLEL_CONNECTS:
                return
            if connection.process is None and now >= connection.start_at:
                self._start(connection)
                starting += 1

    def _start(self, connection: HostConnection) -> None:
        arguments = [*self._command, "snapshot", "--json", "--every", f"{self.interval:g}s"]
        connection.stdout_rest.clear()
        connection.stderr_tail.clear()
        connection.answered, connection.unreadable = False, ""
        try:
            process = subprocess.Popen(
                ssh_command(connection.host, arguments, options=self._options),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
            )
        except OSError as error:
            raise GpuwatchError(f"ssh cannot be started: {error.strerror}", hint="install an ssh client") from error
        connection.process, connection.started_at = process, time.monotonic()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, (connection, pipe))

    def _read(self, connection: HostConnection, pipe: IO[bytes]) -> None:
        if connection.process is None:
            return
        is_stderr = pipe is connection.process.stderr
        try:
            chunk = os.read(pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self._selector.unregister(pipe)
            if not is_stderr:
                self._handle_exit(connection)
            return
        if is_stderr:
            connection.stderr_tail = (connection.stderr_tail + chunk)[-_MAX_MESSAGE_BYTES:]
            return
        connection.stdout_rest += chunk
        end = connection.stdout_rest.rfind(b"\n")
        if end >= 0:
            # Only the newest is of interest; what a login script prints may come before the first.
            newest = bytes(connection.stdout_rest[connection.stdout_rest.rfind(b"\n", 0, end) + 1 : end])
            del connection.stdout_rest[: end + 1]
            self._parse_line(connection, newest)
        if len(connection.stdout_rest) > input_size_limits.HOST_LINE.bytes:
            self._fail(connection, f"sent a line of more than {input_size_limits.HOST_LINE.size_text}")

    def _parse_line(self, connection: HostConnection, line: bytes) -> None:
        if not line.startswith(b"{"):
            return
        try:
            document = from_json(line)
        except NotADocument as error:
            connection.unreadable = f"its answer cannot be read: {error}"
            return
        if not isinstance(document, Snapshot):
            connection.unreadable = "its answer cannot be read: it is not a snapshot"
            return
        connection.answered, connection.failures, connection.line_at = True, 0, time.monotonic()
        silent = next((problem for problem in document.problems if problem.source == "collector"), None)
        if document.driver is None and silent is not None:
            self._set_reason(connection, silent.detail)
            return
        connection.snapshot, connection.sampled_at, connection.reason = document, time.monotonic(), ""
        self._on_change(connection)

    def _set_reason(self, connection: HostConnection, why: str) -> None:
        why = printable(shorten(" ".join(why.split()), _MAX_QUOTED_CHARS))
        if why != connection.reason:
            connection.reason = why
            self._on_change(connection)

    def _check_silence(self) -> None:
        """Finds hosts that have stopped sending."""
        now = time.monotonic()
        for connection in self.connections.values():
            if connection.process is None:
                continue
            if not connection.answered:
                if now - connection.started_at > _FIRST_LINE_SECONDS:
                    self._fail(connection, connection.unreadable or "no answer from gpuwatch there")
                continue
            silent = now - (connection.line_at or connection.started_at) - 2 * self.interval
            if silent > _RESTART_SECONDS:
                self._fail(connection, "stopped sending")
            elif silent > _SILENT_SECONDS and not connection.reason:
                self._set_reason(connection, "stopped sending")

    def _handle_exit(self, connection: HostConnection) -> None:
        process = connection.process
        assert process is not None
        try:
            code = process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            code = None
        assert process.stderr is not None
        with suppress(OSError, ValueError):
            while chunk := os.read(process.stderr.fileno(), _READ_BYTES):
                connection.stderr_tail = (connection.stderr_tail + chunk)[-_MAX_MESSAGE_BYTES:]
        messages = connection.stderr_tail.decode(errors="replace")
        self._fail(connection, _why_failed(code, messages, connection.unreadable))

    def _fail(self, connection: HostConnection, why: str) -> None:
        """Closes a connection, to make it again later."""
        self._kill(connection)
        pause = _RETRY_DELAYS_SECONDS[min(connection.failures, len(_RETRY_DELAYS_SECONDS) - 1)]
        connection.failures += 1
        connection.start_at = time.monotonic() + pause
        self._set_reason(connection, why)

    def _kill(self, connection: HostConnection) -> None:
        process, connection.process = connection.process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            with suppress(KeyError, ValueError):
                self._selector.unregister(pipe)
            pipe.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1.0)


def _why_failed(code: int | None, messages: str, unreadable: str) -> str:
    if code == SSH_FAILED_EXIT_CODE:
        return ssh_failure(messages) or "ssh failed"
    if code == 127 or (code == 126 and _NO_GPUWATCH.search(messages)):
        return "no gpuwatch on its PATH"
    if _TOO_OLD.search(messages):
        return "its gpuwatch is too old: update it"
    if unreadable:
        return unreadable
    if last := last_line(messages):
        return last.removeprefix("gpuwatch: ")
    return "the connection was closed" if code in (0, None) else f"gpuwatch there exited with code {code}"


class SshSource(FleetSource):
    """The hosts of ``--hosts``; :meth:`read` never waits."""

    name = "ssh"

    def __init__(
        self,
        hosts: Sequence[str],
        interval: float,
        *,
        command: Sequence[str] = DEFAULT_COMMAND,
        options: Sequence[str] = (),
    ) -> None:
        """``command``: how gpuwatch is called there; ``options``: further arguments of ``ssh``."""
        self._command, self._options = command, options
        self._connections = SshConnections(hosts, interval, self._on_change, command, options)
        self._views = {host: HostView(name=host, reason=CONNECTING, pending=True) for host in hosts}
        self._wake: Callable[[], None] = lambda: None
        self._timer: threading.Timer | None = None

    def start(self, request_read: Callable[[], None]) -> None:
        """Connects; ``request_read`` is called from another thread when :meth:`read` has something new."""
        self._wake = request_read
        self._connections.thread.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._connections.stop()

    def feed(self, host: str, interval: float) -> SshHostFeed:
        return SshHostFeed(host, interval, command=self._command, options=self._options)

    def set_interval(self, interval: float) -> None:
        self._connections.set_interval(interval)

    def read(self) -> Fleet:
        """All hosts as they are known now; an unchanged host is the same object."""
        if self._connections.thread.failure is not None:
            raise self._connections.thread.failure
        for host, connection in self._connections.connections.items():
            snapshot, reason, view = connection.snapshot, connection.reason, self._views[host]
            if view.snapshot is not snapshot or view.reason != reason:
                self._views[host] = HostView(name=host, snapshot=snapshot, reason=reason, pending=reason == CONNECTING)
        return Fleet(taken_at=time.time(), source=self.name, hosts=tuple(self._views.values()))

    def _on_change(self, connection: HostConnection) -> None:
        """Shows a host that answers, or does no longer; more samples of it wait for the interval."""
        changed = self._views[connection.host].reason != connection.reason
        if changed and (self._timer is None or not self._timer.is_alive()):
            self._timer = threading.Timer(_COALESCE_SECONDS, self._wake)
            self._timer.daemon = True
            self._timer.start()


class SshHostFeed(HostFeed):
    """One host over a connection of its own."""

    def __init__(
        self, host: str, interval: float, *, command: Sequence[str] = DEFAULT_COMMAND, options: Sequence[str] = ()
    ) -> None:
        super().__init__(host)
        self._connections = SshConnections([host], interval, self._on_sample, command, options)
        self._connection = self._connections.connections[host]
        self._thread = self._connections.thread
        self._last: Snapshot | None = None

    @property
    def interval(self) -> float:
        return self._connections.interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        self._connections.set_interval(seconds)

    def _status(self) -> tuple[float | None, str]:
        connection = self._connection
        if connection.sampled_at is None:
            return None, connection.reason if connection.failures else ""
        return time.monotonic() - connection.sampled_at, connection.reason

    def stop(self) -> None:
        self._connections.stop()

    def _on_sample(self, connection: HostConnection) -> None:
        if connection.snapshot is not None and connection.snapshot is not self._last:
            self._last = connection.snapshot
            self._arrived.append(connection.snapshot)
        self._wake()
