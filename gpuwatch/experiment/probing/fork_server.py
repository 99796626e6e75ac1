"""The fork server: a process that imports a framework once and is forked for each probe.

``probes/_gpuwatch_fork_server.py`` is the other end. If forking is not safe, :attr:`ForkServer.unsafe_reason` says why,
and the runner starts a new interpreter for each probe.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.experiment.probing.probe_scripts import probe_folder

_MAX_REQUEST_BYTES = 1 << 16
_POLL_SECONDS = 0.1


class ForkServerLost(GpuwatchError):
    """The fork server ended or does not answer."""


class ForkServer:
    """An interpreter that has imported ``framework`` and waits for orders to fork."""

    def __init__(
        self,
        python: str,
        framework: str,
        environment: Mapping[str, str],
        deadline: float = 120.0,
        while_waiting: Callable[[], None] | None = None,
    ) -> None:
        """Starts it and waits up to ``deadline`` seconds for the import (:class:`ForkServerLost`).

        ``while_waiting`` is called ten times a second meanwhile; an exception from it ends the server and is passed on.
        """
        self._socket, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A file rather than a pipe, which would have to be read during the import.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        os.set_inheritable(server_end.fileno(), True)
        try:
            self._process = subprocess.Popen(
                [python, "-u", str(probe_folder() / "_gpuwatch_fork_server.py"), framework, str(server_end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                pass_fds=(server_end.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            raise ForkServerLost(f"{python} cannot be started: {error.strerror}") from error
        finally:
            server_end.close()
        self._ready = False
        try:
            answer = self._wait_for_import(deadline, while_waiting)
            if answer is None or answer["kind"] != "ready":
                why = "it did not answer in time" if answer is None else answer["message"]
                raise ForkServerLost(f"importing {framework} in {python} failed: {why}")
        except BaseException:
            self.close()
            raise
        self._ready = True
        self.import_seconds: float = answer["seconds"]
        drivers = answer["drivers"]
        self.unsafe_reason = f"importing {framework} opens {drivers}, and a fork would share them" if drivers else ""
        self._output.seek(0)
        self.import_log = self._output.read().splitlines()

    def _wait_for_import(self, deadline: float, while_waiting: Callable[[], None] | None) -> dict[str, Any] | None:
        ends_at = time.monotonic() + deadline
        while (remaining := ends_at - time.monotonic()) > 0:
            message = self.receive(min(_POLL_SECONDS, remaining))
            if message is not None:
                return message
            if while_waiting is not None:
                while_waiting()
        return None

    def fork(
        self, script: Path, environment: Mapping[str, str], event_fd: int, stdout_fd: int, stderr_fd: int
    ) -> ForkedProbe:
        """Forks a probe with these descriptors for its events, stdout and stderr."""
        request = {"script": str(script), "environment": dict(environment)}
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [event_fd, stdout_fd, stderr_fd])
        except OSError as error:
            raise ForkServerLost(f"the fork server is gone: {error.strerror}") from error
        answer = self.receive(10.0)
        if answer is None or answer["kind"] != "started":
            raise ForkServerLost("the fork server did not fork")
        return ForkedProbe(self, answer["pid"])

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """Its next message; None if none came within ``timeout`` seconds."""
        if not select.select([self._socket], [], [], timeout)[0]:
            return None
        try:
            data = self._socket.recv(_MAX_REQUEST_BYTES)
        except OSError as error:
            raise ForkServerLost(f"the fork server is gone: {error.strerror}") from error
        if not data:
            raise ForkServerLost("the fork server exited")
        message: dict[str, Any] = json.loads(data)
        return message

    def close(self) -> None:
        """Ends the server and its forks."""
        self._socket.close()
        try:
            # While it imports it does not read its socket: do not wait for it.
            self._process.wait(timeout=1.0 if self._ready else 0)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._output.close()


class ForkedProbe:
    """A forked probe, with the part of :class:`subprocess.Popen` that the runner uses."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._fork_server = server
        self.pid = pid
        self._exit_code: int | None = None

    def wait(self) -> int:
        """Waits for the exit code of a process that has ended or been killed."""
        code = self.poll(10.0)
        if code is None:
            raise ForkServerLost("the fork server did not report the end of its probe")
        return code

    def poll(self, timeout: float = 0.0) -> int | None:
        """The exit code (negative: signal); None while it runs."""
        if self._exit_code is None:
            message = self._fork_server.receive(timeout)
            if message is not None and message["kind"] == "ended":
                self._exit_code = message["code"]
        return self._exit_code
