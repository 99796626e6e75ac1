"""Starts a watched program behind its guard.

Everything else that watching needs is imported by :mod:`gpuwatch.experiment.probing.watch_program`, after the program
has started: until then its reports, its output and the signals to us wait in sockets and pipes. So this module imports
little.
"""

from __future__ import annotations

import datetime
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from gpuwatch.core.errors import PROCESS_LIMIT_HINT, GpuwatchError
from gpuwatch.experiment.probing import guard_process
from gpuwatch.experiment.probing.output_passthrough import OutputChannel
from gpuwatch.experiment.probing.probe_scripts import probe_folder
from gpuwatch.experiment.probing.received_signals import SignalReceiver
from gpuwatch.experiment.probing.status_line import StatusLine
from gpuwatch.experiment.probing.stream_reader import StreamReader
from gpuwatch.machine.sources.oom_kills import read_oom_kills

if TYPE_CHECKING:
    import tempfile

PENDING_CONNECTIONS = 64
"""Reports of processes that may wait to be accepted."""


def with_watch_hook(environment: dict[str, str]) -> dict[str, str]:
    """``environment`` with ``_gpuwatch_watch`` first in PYTHONPATH, whose sitecustomize.py Python runs at its start."""
    hook = str(probe_folder() / "_gpuwatch_watch")
    other_paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", hook)]
    return {**environment, "PYTHONPATH": os.pathsep.join([hook, *other_paths])}


class WatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a program is started and watched."""

    record_placement: bool = False
    """Record which op was requested where, and ran where."""
    record_memory: bool = False
    """Record who allocates GPU memory, with the framework's own recorder."""
    read_log: bool = True
    """Read the program's stderr; False leaves it untouched."""
    status_line: bool = False
    """Draw a status line on the terminal."""
    print_findings: bool = False
    """Print findings as soon as they are known."""
    simulation: str | None = None
    """Tier of the simulated GPUs; None: the GPUs are real."""
    variables: Mapping[str, str] = {}
    """Environment variables for the program, besides gpuwatch's own."""
    folder: Path | None = None
    """Working folder of the program; None: ours."""
    output: Path | None = None
    """A new file for the program's stdout and stderr. The program then gets a session of its own, and no input."""
    receive_signals: bool = True
    """Receive signals to gpuwatch; False in a thread, which cannot."""


class GuardedProgram:
    """A program, its guard, and everything that connects them with us. A context manager that ends all of it.

    It listens for the reports of the program's processes in the abstract namespace (``unix(7)``), which leaves no file
    behind.
    """

    def __init__(self, command: Sequence[str], options: WatchOptions) -> None:
        self.command = list(command)
        self.options = options
        self.has_own_session = options.output is not None
        """Whether it has a session of its own: its output goes to a file, and Ctrl+C does not reach it."""
        self.streams = StreamReader()
        address = f"gpuwatch-{os.getpid()}-{os.urandom(4).hex()}"
        self.report_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        """Every Python process of the program connects here."""
        self.report_socket.bind("\0" + address)
        self.report_socket.listen(PENDING_CONNECTIONS)
        self.report_socket.setblocking(False)
        self._recordings: tempfile.TemporaryDirectory[str] | None = None
        """For what frameworks record."""
        if options.record_memory:
            # Most programs are watched without.
            from gpuwatch.experiment.probing.memory_recording import recordings_folder

            self._recordings = recordings_folder()
        self.environment = self._environment(address)
        self.channel = OutputChannel(intercept=options.read_log, file=options.output)
        self.status_line = StatusLine(
            self.channel, command, draw_line=options.status_line, print_findings=options.print_findings
        )
        self.signals = SignalReceiver(
            self.streams, partial(self.send_command, "report"), receive=options.receive_signals
        )
        self.control, self._guard_end = socket.socketpair()
        self.guard: subprocess.Popen[bytes] | None = None
        self.oom_kills_before = read_oom_kills()
        self.started_at = datetime.datetime.now(datetime.UTC)
        self.started_monotonic = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.status_line.end()
        # Tells the guard that we are gone, so it ends whatever still runs.
        self.control.close()
        self._guard_end.close()
        if self.guard is not None and (kind is not None or self.has_own_session):
            self.guard.wait()
        self.report_socket.close()
        self.signals.close()
        self.streams.close()
        self.channel.close()
        if self._recordings is not None:
            self._recordings.cleanup()

    def _environment(self, address: str) -> dict[str, str]:
        environment = {**os.environ, **self.options.variables, "GPUWATCH_WATCH": address}
        if self.options.record_placement:
            environment["GPUWATCH_WATCH_PLACEMENT"] = "1"
        if self._recordings is not None:
            environment["GPUWATCH_WATCH_MEMORY"] = self._recordings.name
        return with_watch_hook(environment)

    def start(self) -> None:
        """Starts the guard, which starts the program and reports whether that worked."""
        self.status_line.begin()
        channel = self.channel
        # A signal that comes while the guard starts stays pending until the guard can report it.
        previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, guard_process.PASSED_SIGNALS)
        try:
            self.guard = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", guard_process.__file__),
                    *map(str, (self._guard_end.fileno(), channel.read_fd, channel.write_fd)),
                    "-" + "m" * channel.stdout_is_merged + "s" * self.has_own_session,
                    *self.command,
                ],
                env=self.environment,
                cwd=self.options.folder,
                pass_fds=[fd for fd in (self._guard_end.fileno(), channel.read_fd, channel.write_fd) if fd >= 0],
            )
        except OSError as error:
            hint = PROCESS_LIMIT_HINT if error.errno == errno.EAGAIN else ""
            raise GpuwatchError(f"{sys.executable} cannot be started: {error.strerror}", hint=hint) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
        self._guard_end.close()
        channel.close_write_end()
        self.send_restore_bytes()

    def send_restore_bytes(self) -> None:
        """Gives the guard the bytes that undo what is drawn on the terminal, in case we are killed."""
        if self.options.status_line:
            self.send_command(f"restore {self.status_line.undo.hex()}")

    def send_command(self, command: str) -> None:
        """Sends the guard a command (see :mod:`gpuwatch.experiment.probing.guard_process`)."""
        with suppress(OSError):
            self.control.sendall(command.encode() + b"\n")
