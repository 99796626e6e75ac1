"""The collector's process as its parent sees it: the frames that it writes, and how it ends."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress

from gpuwatch.machine.collector.fork import ForkedProcess
from gpuwatch.machine.history.frames import HEAD_BYTES, head

CollectorProcess = subprocess.Popen[bytes] | ForkedProcess
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
"""Signals by which a crash of the driver's library ends it."""


def frames_of(process: CollectorProcess) -> Iterator[tuple[bytes, bytes]]:
    """Kind and body of each frame until the process exits."""
    stream = process.stdout
    assert stream is not None
    while len(start := stream.read(HEAD_BYTES)) == HEAD_BYTES:
        length, kind = head(start)
        frame = stream.read(length)
        if len(frame) < length:
            return
        yield kind, frame


def end(process: CollectorProcess) -> None:
    """Closes the process's stdin, then kills it; a process that hangs inside the driver is left to the kernel."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(timeout=0.1)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)


def exit_code(process: CollectorProcess) -> int | None:
    """The exit code of a process whose output has ended; None if it is still running."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=0.2)  # its output ends a moment before the process does
    return process.poll()


def ending(code: int | None) -> str:
    """How the process ended; completes "the collector …"."""
    if code is None:
        return "closed its output"
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:  # a real-time signal has no name
            return f"was killed by signal {-code}"
    return f"exited with code {code}"
