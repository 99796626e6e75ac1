"""The fork server: a process that imports a framework once and is forked for each probe.

``probes/_gpuwatch_fork_server.py`` is the other end. If forking is not safe, :attr:`ForkServer.unsafe` says why, and
the runner starts a new interpreter for each probe.
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
        between: Callable[[], None] | None = None,
    ) -> None:
        """Starts it and waits up to ``deadline`` seconds for the import (:class:`ForkServerLost`).

        ``between`` is called ten times a second meanwhile; an exception from it ends the server and is passed on.
        """
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A file rather than a pipe, which would have to be read during the import.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        os.set_inheritable(theirs.fileno(), True)
        try:
            self._process = subprocess.Popen(
                [python, "-u", str(probe_folder() / "_gpuwatch_fork_server.py"), framework, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            raise ForkServerLost(f"{python} cannot be started: {error.strerror}") from error
        finally:
            theirs.close()
        self._ready = False
        try:
            ready = self._wait_for_import(deadline, between)
            if ready is None or ready["kind"] != "ready":
                why = "it did not answer in time" if ready is None else ready["message"]
                raise ForkServerLost(f"importing {framework} in {python} failed: {why}")
        except BaseException:
            self.close()
            raise
        self._ready = True
        self.import_seconds: float = ready["seconds"]
        drivers = ready["drivers"]
        self.unsafe = f"importing {framework} opens {drivers}, and a fork would share them" if drivers else ""
        self._output.seek(0)
        self.import_log = self._output.read().splitlines()

    def _wait_for_import(self, deadline: float, between: Callable[[], None] | None) -> dict[str, Any] | None:
        until = time.monotonic() + deadline
        while (left := until - time.monotonic()) > 0:
            message = self.receive(min(_POLL_SECONDS, left))
            if message is not None:
                return message
            if between is not None:
                between()
        return None

    def spawn(self, script: Path, environment: Mapping[str, str], events: int, out: int, err: int) -> ForkedProbe:
        """Forks a probe with these descriptors for its events, stdout and stderr."""
        order = {"script": str(script), "environment": dict(environment)}
        try:
            socket.send_fds(self._control, [json.dumps(order).encode()], [events, out, err])
        except OSError as error:
            raise ForkServerLost(f"the fork server is gone: {error.strerror}") from error
        started = self.receive(10.0)
        if started is None or started["kind"] != "started":
            raise ForkServerLost("the fork server did not fork")
        return ForkedProbe(self, started["pid"])

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """Its next message; None if none came within ``timeout`` seconds."""
        if not select.select([self._control], [], [], timeout)[0]:
            return None
        try:
            data = self._control.recv(_MAX_REQUEST_BYTES)
        except OSError as error:
            raise ForkServerLost(f"the fork server is gone: {error.strerror}") from error
        if not data:
            raise ForkServerLost("the fork server exited")
        message: dict[str, Any] = json.loads(data)
        return message

    def close(self) -> None:
        """Ends the server and its forks."""
        self._control.close()
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
        self._code: int | None = None

    def wait(self) -> int:
        """Waits for the exit code of a process that has ended or been killed."""
        code = self.poll(10.0)
        if code is None:
            raise ForkServerLost("the fork server did not report the end of its probe")
        return code

    def poll(self, timeout: float = 0.0) -> int | None:
        """The exit code (negative: signal); None while it runs."""
        if self._code is None:
            message = self._fork_server.receive(timeout)
            if message is not None and message["kind"] == "ended":
                self._code = message["code"]
        return self._code
