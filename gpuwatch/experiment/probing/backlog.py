"""A program's output, already passed on and queued for parsing, so that the program does not wait for the parsers.

The queue is bounded. When it is full, chunks without a telling word are skipped, and the others are parsed at once
while the program waits.
"""

from __future__ import annotations

from collections import deque

from gpuwatch.experiment.probing.streams import Lines, Sink

MOST = 8 << 20
"""Bytes that can be queued."""
_SLICE = 1 << 16
# C++ log lines and exceptions: chunks with any of these are never skipped.
_TELLING = (b".cc:", b"rror", b"emory")


class Backlog:
    """Queues chunks, and passes their lines to ``sink`` when there is time."""

    def __init__(self, sink: Sink) -> None:
        self._lines = Lines(sink)
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._gap = False
        self.left_out = 0
        """Bytes that were never parsed."""

    def __len__(self) -> int:
        """Queued bytes."""
        return self._size

    def put(self, chunk: bytes) -> None:
        """Queues the next bytes."""
        for start in range(0, len(chunk), _SLICE):
            self._chunks.append(chunk[start : start + _SLICE])
        self._size += len(chunk)
        while self._size > MOST:
            oldest = self._take()
            if any(text in oldest for text in _TELLING):
                self._feed(oldest)
            else:
                self.left_out += len(oldest)
                self._gap = True

    def work(self) -> bool:
        """Parses one chunk; False if none is queued."""
        if not self._chunks:
            return False
        self._feed(self._take())
        return True

    def close(self) -> None:
        """Parses everything queued, and a last line without a newline."""
        while self.work():
            pass
        self._lines.close()

    def _take(self) -> bytes:
        chunk = self._chunks.popleft()
        self._size -= len(chunk)
        return chunk

    def _feed(self, chunk: bytes) -> None:
        if self._gap:
            self._gap = False
            self._lines.close()  # the line before the gap does not continue after it
        self._lines.feed(chunk)
