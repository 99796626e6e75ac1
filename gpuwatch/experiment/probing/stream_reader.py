"""Reads many descriptors (a pipe that nobody reads would block its writer), and splits what comes into lines."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable
from contextlib import suppress

from gpuwatch.core import input_size_limits

READ_BYTES = 1 << 18
Sink = Callable[[bytes], object]


class LineSplitter:
    """Splits a byte stream into lines; very long lines are split too, so that memory stays bounded."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._sink(line)
        if len(self._rest) > input_size_limits.LOG_LINE.bytes:
            self.close()

    def close(self) -> None:
        """Passes on a last line without a newline."""
        rest, self._rest = self._rest, b""
        if rest:
            self._sink(rest)


class StreamReader:
    """Several descriptors, each with its receiver."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add(self, descriptor: int, sink: Sink, at_end: Callable[[], None] | None = None) -> None:
        """Reads ``descriptor``: chunks go to ``sink``; ``at_end`` is called once at its end."""
        os.set_blocking(descriptor, False)
        self.on_ready(descriptor, lambda: self._read(descriptor, sink, at_end))

    def on_ready(self, descriptor: int, read_available: Callable[[], bool]) -> None:
        """Calls ``read_available`` when ``descriptor`` (a listening socket) is readable; it returns True if that gave
        more."""
        self._selector.register(descriptor, selectors.EVENT_READ, read_available)

    def remove(self, descriptor: int) -> None:
        """Stops reading ``descriptor``; the caller closes it."""
        with suppress(KeyError):
            self._selector.unregister(descriptor)

    def is_reading(self, descriptor: int) -> bool:
        """Whether ``descriptor`` is still read: its end has not come."""
        return descriptor in self._selector.get_map()

    def __len__(self) -> int:
        return len(self._selector.get_map())

    def drain(self, timeout: float) -> bool:
        """Reads what is available, waiting up to ``timeout`` seconds; True if anything came."""
        if not self._selector.get_map():
            time.sleep(min(timeout, 0.005))
            return False
        received = False
        for key, _ in self._selector.select(timeout):
            received |= key.data()
        return received

    def _read(self, descriptor: int, sink: Sink, at_end: Callable[[], None] | None) -> bool:
        try:
            chunk = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""  # a terminal whose other end is closed answers EIO, a socket ECONNRESET
        if chunk:
            sink(chunk)
            return True
        self.remove(descriptor)
        if at_end is not None:
            at_end()
        return True

    def close(self) -> None:
        self._selector.close()
