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
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO

from gpuwatch.core import input_size_limits
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.model.fleet import Fleet, HostView
from gpuwatch.core.model.json_codec import NotADocument, from_json
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.safe_text import printable, shorten
from gpuwatch.fleet.host_poller import FleetSource
from gpuwatch.fleet.ssh_hosts import SSH_FAILED_EXIT_CODE, last_line, ssh_command, ssh_failure
from gpuwatch.machine.collector.feed_interface import FeedStatus
from gpuwatch.machine.collector.process_access import ProcessAccess

CONNECTING = "connecting…"
GPUWATCH = ("gpuwatch",)
"""How gpuwatch is called on a host."""
_COALESCE_SECONDS = 0.3
"""Seconds for which news are collected before they are shown."""
_MAX_PARALLEL_CONNECTS = 32
"""Connections that are made at the same time."""
_START_SECONDS = 45.0
"""How long a host has until its first line; to accept the connection: :data:`.ssh_hosts.CONNECT_SECONDS`."""
_LATE_SECONDS, _DEAD_SECONDS = 10.0, 45.0
"""Seconds, besides two intervals, without a line after which a host counts as silent, and is started again."""
_RETRY_SECONDS = (2.0, 5.0, 10.0, 20.0, 40.0, 60.0)
"""Seconds until the next try, after each failure."""
_READ_BYTES = 1 << 18
_MAX_MESSAGE_BYTES = 8192
_MAX_QUOTED_CHARS = 120
_NO_GPUWATCH = re.compile(r"not found|No such file or directory")
_TOO_OLD = re.compile(r"[Nn]o such option:? '?--every")


class Stream:
    """One host."""

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
        self.started = 0.0
        self.due = 0.0
        self.failures = 0
        self.lines = bytearray()
        self.messages = bytearray()
        self.answered = False
        """Whether the running process has sent a line."""
        self.unreadable = ""
        """Why the last line could not be read."""


class RemoteStreams:
    """Streams of several hosts, read by one thread.

    ``changed`` is called from that thread with a host that has new data or another reason. ``command``: how gpuwatch is
    called there; ``options``: further arguments of ``ssh``.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        interval: float,
        changed: Callable[[Stream], None],
        *,
        command: Sequence[str] = GPUWATCH,
        options: Sequence[str] = (),
    ) -> None:
        self._interval = interval
        self._changed = changed
        self._command = tuple(command)
        self._options = tuple(options)
        self.streams = {host: Stream(host) for host in hosts}
        self._restart_at: float | None = None
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.failure: BaseException | None = None
        """The error of gpuwatch itself that ended the thread."""

    @property
    def interval(self) -> float:
        """Seconds between the samples of a host; a change starts the streams again."""
        return self._interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        if seconds != self._interval:
            self._interval = seconds
            self._restart_at = time.monotonic() + 1.0  # more key presses may follow
            self._wake()

    def start(self) -> None:
        """Connects in a thread of its own."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpuwatch-hosts", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=3.0)

    # -- inside ---------------------------------------------------------------------------------

    def _wake(self) -> None:
        with suppress(OSError):
            os.write(self._wake_write, b".")

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._start_due()
                for key, _ in self._selector.select(0.25):
                    if key.data is None:
                        os.read(self._wake_read, 4096)
                    else:
                        self._read(*key.data)
                self._check_silence()
        except BaseException as error:  # noqa: BLE001  # who shows the hosts raises it
            self.failure = error
        finally:
            for stream in self.streams.values():
                self._end(stream)
            self._selector.close()

    def _start_due(self) -> None:
        now = time.monotonic()
        if self._restart_at is not None and now >= self._restart_at:
            self._restart_at = None
            for stream in self.streams.values():
                if stream.process is not None:
                    self._end(stream)
                    stream.due = 0.0
        starting = sum(stream.process is not None and not stream.answered for stream in self.streams.values())
        for stream in self.streams.values():
            if starting >= _MAX_PARALLEL_CONNECTS:
                return
            if stream.process is None and now >= stream.due:
                self._start(stream)
                starting += 1

    def _start(self, stream: Stream) -> None:
        arguments = [*self._command, "snapshot", "--json", "--every", f"{self._interval:g}s"]
        stream.lines.clear()
        stream.messages.clear()
        stream.answered, stream.unreadable = False, ""
        try:
            process = subprocess.Popen(
                ssh_command(stream.host, arguments, options=self._options),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
            )
        except OSError as error:
            raise GpuwatchError(f"ssh cannot be started: {error.strerror}", hint="install an ssh client") from error
        stream.process, stream.started = process, time.monotonic()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, (stream, pipe))

    def _read(self, stream: Stream, pipe: IO[bytes]) -> None:
        if stream.process is None:
            return
        is_stderr = pipe is stream.process.stderr
        try:
            chunk = os.read(pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self._selector.unregister(pipe)
            if not is_stderr:
                self._ended(stream)
            return
        if is_stderr:
            stream.messages = (stream.messages + chunk)[-_MAX_MESSAGE_BYTES:]
            return
        stream.lines += chunk
        end = stream.lines.rfind(b"\n")
        if end >= 0:
            # Only the newest is of interest; what a login script prints may come before the first.
            newest = bytes(stream.lines[stream.lines.rfind(b"\n", 0, end) + 1 : end])
            del stream.lines[: end + 1]
            self._line(stream, newest)
        if len(stream.lines) > input_size_limits.HOST_LINE.bytes:
            self._fail(stream, f"sent a line of more than {input_size_limits.HOST_LINE.most}")

    def _line(self, stream: Stream, line: bytes) -> None:
        if not line.startswith(b"{"):
            return
        try:
            document = from_json(line)
        except NotADocument as error:
            stream.unreadable = f"its answer cannot be read: {error}"
            return
        if not isinstance(document, Snapshot):
            stream.unreadable = "its answer cannot be read: it is not a snapshot"
            return
        stream.answered, stream.failures, stream.line_at = True, 0, time.monotonic()
        silent = next((problem for problem in document.problems if problem.source == "collector"), None)
        if document.driver is None and silent is not None:
            self._reason(stream, silent.detail)
            return
        stream.snapshot, stream.sampled_at, stream.reason = document, time.monotonic(), ""
        self._changed(stream)

    def _reason(self, stream: Stream, why: str) -> None:
        why = printable(shorten(" ".join(why.split()), _MAX_QUOTED_CHARS))
        if why != stream.reason:
            stream.reason = why
            self._changed(stream)

    def _check_silence(self) -> None:
        """Finds hosts that have stopped sending."""
        now = time.monotonic()
        for stream in self.streams.values():
            if stream.process is None:
                continue
            if not stream.answered:
                if now - stream.started > _START_SECONDS:
                    self._fail(stream, stream.unreadable or "no answer from gpuwatch there")
                continue
            silent = now - (stream.line_at or stream.started) - 2 * self._interval
            if silent > _DEAD_SECONDS:
                self._fail(stream, "stopped sending")
            elif silent > _LATE_SECONDS and not stream.reason:
                self._reason(stream, "stopped sending")

    def _ended(self, stream: Stream) -> None:
        process = stream.process
        assert process is not None
        try:
            code = process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            code = None
        assert process.stderr is not None
        with suppress(OSError, ValueError):
            while chunk := os.read(process.stderr.fileno(), _READ_BYTES):
                stream.messages = (stream.messages + chunk)[-_MAX_MESSAGE_BYTES:]
        self._fail(stream, _why_failed(code, stream.messages.decode(errors="replace"), stream.unreadable))

    def _fail(self, stream: Stream, why: str) -> None:
        self._end(stream)
        pause = _RETRY_SECONDS[min(stream.failures, len(_RETRY_SECONDS) - 1)]
        stream.failures += 1
        stream.due = time.monotonic() + pause
        self._reason(stream, why)

    def _end(self, stream: Stream) -> None:
        process, stream.process = stream.process, None
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
        self, hosts: Sequence[str], interval: float, *, command: Sequence[str] = GPUWATCH, options: Sequence[str] = ()
    ) -> None:
        """``command``: how gpuwatch is called there; ``options``: further arguments of ``ssh``."""
        self._command, self._options = command, options
        self._streams = RemoteStreams(hosts, interval, self._on_change, command=command, options=options)
        self._views = {host: HostView(name=host, reason=CONNECTING, pending=True) for host in hosts}
        self._wake: Callable[[], None] = lambda: None
        self._timer: threading.Timer | None = None

    def start(self, news: Callable[[], None]) -> None:
        """Connects; ``news`` is called from another thread when :meth:`read` has something new."""
        self._wake = news
        self._streams.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._streams.stop()

    def feed(self, host: str, interval: float) -> SshHostFeed:
        return SshHostFeed(host, interval, command=self._command, options=self._options)

    def set_interval(self, interval: float) -> None:
        self._streams.interval = interval

    def read(self) -> Fleet:
        """All hosts as they are known now; an unchanged host is the same object."""
        if self._streams.failure is not None:
            raise self._streams.failure
        for host, stream in self._streams.streams.items():
            snapshot, reason, view = stream.snapshot, stream.reason, self._views[host]
            if view.snapshot is not snapshot or view.reason != reason:
                self._views[host] = HostView(name=host, snapshot=snapshot, reason=reason, pending=reason == CONNECTING)
        return Fleet(taken_at=time.time(), source=self.name, hosts=tuple(self._views.values()))

    def _on_change(self, stream: Stream) -> None:
        """Shows a host that answers, or does no longer; more samples of it wait for the interval."""
        changed = self._views[stream.host].reason != stream.reason
        if changed and (self._timer is None or not self._timer.is_alive()):
            self._timer = threading.Timer(_COALESCE_SECONDS, self._wake)
            self._timer.daemon = True
            self._timer.start()


class SshHostFeed:
    """One host over a connection of its own; implements :class:`gpuwatch.machine.collector.feed_interface.Feed`."""

    def __init__(
        self, host: str, interval: float, *, command: Sequence[str] = GPUWATCH, options: Sequence[str] = ()
    ) -> None:
        self.host = ProcessAccess(host)
        self._streams = RemoteStreams([host], interval, self._on_sample, command=command, options=options)
        self._stream = self._streams.streams[host]
        self._wake: Callable[[], None] | None = None
        self._arrived: deque[Snapshot] = deque()
        self._last: Snapshot | None = None

    @property
    def interval(self) -> float:
        return self._streams.interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        self._streams.interval = seconds

    def start(self, wake: Callable[[], None] | None = None) -> None:
        self._wake = wake
        self._streams.start()

    def drain(self) -> list[Snapshot]:
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def status(self) -> FeedStatus:
        stream = self._stream
        age = None if stream.sampled_at is None else time.monotonic() - stream.sampled_at
        if stream.reason and (age is not None or stream.failures):
            return FeedStatus("stopped", age, detail=stream.reason)
        return FeedStatus("starting") if age is None else FeedStatus("ok", age)

    def resumed(self) -> None:
        """Nothing to do: streams that were closed during the stop restart by themselves."""

    def stop(self) -> None:
        self._streams.stop()

    def _on_sample(self, stream: Stream) -> None:
        if stream.snapshot is not None and stream.snapshot is not self._last:
            self._last = stream.snapshot
            self._arrived.append(stream.snapshot)
        if self._wake is not None:
            self._wake()
