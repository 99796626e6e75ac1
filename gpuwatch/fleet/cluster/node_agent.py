"""On a node: runs one gpuwatch command, sends its output to the launcher, and ends it when nobody listens any more.

``gpuwatch node -- snapshot`` is started by a launcher (:mod:`gpuwatch.fleet.cluster.launchers`), which writes a line to
its stdin and keeps that open. When stdin ends, the other side is gone: ssh and Slurm pass on no signal then. The
command gets SIGINT, as from Ctrl+C, then SIGTERM and SIGKILL, and so does everything that it started.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress

from gpuwatch import __version__
from gpuwatch.core import input_size_limits
from gpuwatch.experiment.probing.guard_process import descendants
from gpuwatch.fleet.cluster.node_protocol import FrameKind, encode_frame

GREETING = b"gpuwatch\n"
"""What a launcher writes to stdin if it keeps it open: only then does its end mean anything."""
PROGRESS_VARIABLE = "GPUWATCH_PROGRESS_LINES"
"""Makes the command write its progress (``gpuwatch/cli/progress.py``) as lines beginning with a mark."""
PROGRESS_MARK = b"\x1f"

_PR_SET_CHILD_SUBREAPER = 36
_SIGINT_SECONDS, _SIGTERM_SECONDS = 8.0, 3.0
"""Seconds that the command has after each signal. ``gpuwatch try`` itself needs up to 7 to end a program."""
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MAX_STDERR_BYTES = 256 << 10
"""Bytes of the command's messages that are sent."""
_PROGRESS_SECONDS = 0.5
"""Least seconds between two reports of progress."""
_READ_BYTES = 1 << 16


class NodeAgent:
    """Runs one command, and sends frames to stdout."""

    def __init__(self) -> None:
        self._out = sys.stdout.buffer
        self._signal = 0
        """The signal that was received; SIGINT if stdin ended."""
        self._ending_since = 0.0
        self._signals_left: list[tuple[float, signal.Signals]] = []
        self._greeted = False
        self._stderr_sent = 0
        self._stderr_rest = b""
        self._progress_sent_at = 0.0
        self._document_bytes = 0
        self._compressor = zlib.compressobj(6)

    def run(self, command: Sequence[str]) -> int:
        """Runs a command and returns its exit code; all that it wrote was sent."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for number in _END_SIGNALS:
            signal.signal(number, self._on_signal)
        self._send("hello", json.dumps({"version": __version__, "host": os.uname().nodename}).encode())
        started_at = time.monotonic()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, PROGRESS_VARIABLE: "1"},
        )
        try:
            self._forward_output(child)
        finally:
            _kill_descendants()
        code = child.wait()
        self._send("data", self._compressor.flush())
        report = {
            "exit_code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "bytes": self._document_bytes,
            "took_seconds": round(time.monotonic() - started_at, 3),
        }
        self._send("end", json.dumps(report).encode())
        return code if code >= 0 else 128 - code

    def _on_signal(self, number: int, frame: object) -> None:
        if self._ending_since:  # asked again: whoever waits will not wait for long
            self._ending_since = -math.inf
        self._signal = self._signal or number

    def _forward_output(self, child: subprocess.Popen[bytes]) -> None:
        """Passes on what the command writes, until it and all that write to its pipes have ended."""
        assert child.stdout is not None
        assert child.stderr is not None
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ, self._send_document)
            selector.register(child.stderr, selectors.EVENT_READ, self._send_messages)
            with suppress(OSError):  # closed, or a file
                selector.register(0, selectors.EVENT_READ, self._on_stdin)
            streams = 2
            while streams or child.poll() is None:
                self._end_command(child)
                for key, _ in selector.select(0.2):
                    try:
                        data = os.read(key.fd, _READ_BYTES)
                    except OSError:
                        data = b""
                    key.data(data)
                    if not data:
                        selector.unregister(key.fileobj)
                        streams -= key.data != self._on_stdin
                if streams and child.poll() is not None and not self._ending_since:
                    self._ending_since = time.monotonic()  # a process that it left behind holds the pipes
                if streams and child.poll() is not None and time.monotonic() - self._ending_since > _SIGTERM_SECONDS:
                    return

    def _end_command(self, child: subprocess.Popen[bytes]) -> None:
        """Ends the command, step by step, if that was asked for."""
        if not self._signal or child.poll() is not None:
            return
        if not self._ending_since:
            self._ending_since = time.monotonic()
            child.send_signal(signal.SIGINT)  # to it alone: what it started, it ends itself
            kill_after = _SIGINT_SECONDS + _SIGTERM_SECONDS
            self._signals_left = [(_SIGINT_SECONDS, signal.SIGTERM), (kill_after, signal.SIGKILL)]
        waited = time.monotonic() - self._ending_since
        while self._signals_left and waited > self._signals_left[0][0]:
            child.send_signal(self._signals_left.pop(0)[1])

    def _on_stdin(self, data: bytes) -> None:
        if data:
            self._greeted = True
        elif self._greeted:
            self._signal = self._signal or signal.SIGINT

    def _send_document(self, data: bytes) -> None:
        # One byte more than the limit is sent, from which the reader tells that the document is too large.
        room = input_size_limits.DOCUMENT.bytes + 1 - self._document_bytes
        self._document_bytes += len(data)
        if room > 0:
            self._send("data", self._compressor.compress(data[:room]))

    def _send_messages(self, data: bytes) -> None:
        *lines, self._stderr_rest = (self._stderr_rest + data).split(b"\n")
        if not data:
            lines.append(self._stderr_rest)
            self._stderr_rest = b""
        elif len(self._stderr_rest) > _READ_BYTES:
            lines.append(self._stderr_rest[:_READ_BYTES])
            self._stderr_rest = b""
        for line in lines:
            now = time.monotonic()
            if line.startswith(PROGRESS_MARK):
                if now - self._progress_sent_at >= _PROGRESS_SECONDS:
                    self._progress_sent_at = now
                    self._send("progress", line[1:300])
            elif line and self._stderr_sent < _MAX_STDERR_BYTES:
                self._stderr_sent += len(line) + 1
                self._send("stderr", line + b"\n")

    def _send(self, kind: FrameKind, payload: bytes) -> None:
        if not payload and kind == "data":
            return
        try:
            self._out.write(encode_frame(kind, payload))
            self._out.flush()
        except OSError:  # nobody listens any more
            self._signal = self._signal or signal.SIGHUP
            self._out = open(os.devnull, "wb")  # noqa: PTH123, SIM115


def _kill_descendants() -> None:
    """Ends what the command left behind; orphans are children of this process."""
    for number, seconds in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 2.0)):
        until = time.monotonic() + seconds
        sent: set[int] = set()
        while time.monotonic() < until:
            pids = descendants(os.getpid())
            if not pids:
                return
            for pid in pids:
                if pid not in sent:
                    sent.add(pid)
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
            time.sleep(0.05)
