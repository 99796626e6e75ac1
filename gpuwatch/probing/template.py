"""The template process: a framework imported once, a fork of it per probe.

See ``probes/_gpuwatch_template.py`` for the other end. A template is only used while forking from it
is safe; where it is not, :attr:`Template.unsafe` says why and the runner starts probes afresh.
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

from gpuwatch.errors import GpuwatchError
from gpuwatch.probing.locate import probe_folder

_LARGEST = 1 << 16
_BETWEEN = 0.1


class TemplateLost(GpuwatchError):
    """The template ended or stopped answering; nothing can be forked from it."""


class Template:
    """An interpreter that has imported ``framework`` and waits for probes to fork."""

    def __init__(
        self,
        python: str,
        framework: str,
        environment: Mapping[str, str],
        deadline: float = 120.0,
        between: Callable[[], None] | None = None,
    ) -> None:
        """Starts it and waits for the import, ``deadline`` seconds at most (:class:`TemplateLost`).

        ``between`` is called ten times a second meanwhile; what it raises ends the template and is passed on.
        """
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A file and not a pipe: nobody has to read it while the import writes.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        os.set_inheritable(theirs.fileno(), True)
        try:
            self._process = subprocess.Popen(
                [python, "-u", str(probe_folder() / "_gpuwatch_template.py"), framework, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            raise TemplateLost(f"{python} cannot be started: {error.strerror}") from error
        finally:
            theirs.close()
        self.import_seconds = 0.0
        self.unsafe = ""
        self._ready = False
        try:
            ready = self._first_word(deadline, between)
            if ready is None or ready["kind"] != "ready":
                why = "it did not answer in time" if ready is None else str(ready.get("message"))
                raise TemplateLost(f"importing {framework} in {python} failed: {why}")
        except BaseException:
            self.close()
            raise
        self._ready = True
        seconds = ready["seconds"]
        assert isinstance(seconds, float)
        self.import_seconds = seconds
        if ready["drivers"]:
            self.unsafe = f"importing {framework} opens {ready['drivers']}, which a fork would share"
        self._output.seek(0)
        self.import_log = self._output.read().splitlines()

    def _first_word(self, deadline: float, between: Callable[[], None] | None) -> dict[str, object] | None:
        until = time.monotonic() + deadline
        while (left := until - time.monotonic()) > 0:
            message = self.receive(min(_BETWEEN, left))
            if message is not None:
                return message
            if between is not None:
                between()
        return None

    def spawn(self, script: Path, environment: Mapping[str, str], events: int, out: int, err: int) -> TemplateChild:
        """Forks a probe with these descriptors for its events, stdout and stderr."""
        order = {"script": str(script), "environment": dict(environment)}
        try:
            socket.send_fds(self._control, [json.dumps(order).encode()], [events, out, err])
        except OSError as error:
            raise TemplateLost(f"the template process is gone: {error.strerror}") from error
        started = self.receive(10.0)
        if started is None or started["kind"] != "started":
            raise TemplateLost("the template process did not fork")
        pid = started["pid"]
        assert isinstance(pid, int)
        return TemplateChild(self, pid)

    def receive(self, timeout: float) -> dict[str, object] | None:
        """Its next message; None when none came in ``timeout`` seconds."""
        if not select.select([self._control], [], [], timeout)[0]:
            return None
        try:
            data = self._control.recv(_LARGEST)
        except OSError as error:
            raise TemplateLost(f"the template process is gone: {error.strerror}") from error
        if not data:
            raise TemplateLost("the template process ended")
        message: dict[str, object] = json.loads(data)
        return message

    def close(self) -> None:
        """Ends it, and what it forked with it."""
        self._control.close()
        try:
            # One that still imports does not look at its socket, and nobody wants what it will say.
            self._process.wait(timeout=1.0 if self._ready else 0)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._output.close()


class TemplateChild:
    """A forked probe; like :class:`subprocess.Popen` in what the runner needs of it."""

    def __init__(self, template: Template, pid: int) -> None:
        self._template = template
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Exit code (negative: signal) when it has ended, else None."""
        return self._look(0.0)

    def wait(self) -> int:
        """Blocks until it has ended; it has been killed by then."""
        code = self._look(10.0)
        if code is None:
            raise TemplateLost("the template process does not report the end of its probe")
        return code

    def _look(self, timeout: float) -> int | None:
        if self._code is None:
            message = self._template.receive(timeout)
            if message is not None and message["kind"] == "ended":
                code = message["code"]
                assert isinstance(code, int)
                self._code = code
        return self._code
