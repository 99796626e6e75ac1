"""A program's output that waits to be parsed, and what is skipped if it comes faster than that."""

from __future__ import annotations

from collections import deque

from gpuwatch.experiment.probing.stream_reader import LineSplitter, Sink

MAX_QUEUED_BYTES = 8 << 20
"""Bytes that can be queued."""
_SLICE_BYTES = 1 << 16
# C++ log lines and exceptions: chunks with any of these are never skipped.
_NEVER_SKIPPED = (b".cc:", b"rror", b"emory")


class OutputBacklog:
    """A program's output, already passed on and queued for parsing, so that the program does not wait for the parsers.

    It is bounded. When it is full, chunks without a telling word are skipped, and the others are parsed at once while
    the program waits.
    """

    def __init__(self, sink: Sink) -> None:
        self._lines = LineSplitter(sink)
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._follows_gap = False
        self.skipped_bytes = 0
        """Bytes that were never parsed."""

    def __len__(self) -> int:
        return self._size

    def queue(self, chunk: bytes) -> None:
        for start in range(0, len(chunk), _SLICE_BYTES):
            self._chunks.append(chunk[start : start + _SLICE_BYTES])
        self._size += len(chunk)
        while self._size > MAX_QUEUED_BYTES:
            oldest = self._take_oldest()
            if any(text in oldest for text in _NEVER_SKIPPED):
                self._feed(oldest)
            else:
                self.skipped_bytes += len(oldest)
                self._follows_gap = True

    def parse_next(self) -> bool:
        """Parses one chunk; False if none is queued."""
        if not self._chunks:
            return False
        self._feed(self._take_oldest())
        return True

    def close(self) -> None:
        """Parses everything queued, and a last line without a newline."""
        while self.parse_next():
            pass
        self._lines.close()

    def _take_oldest(self) -> bytes:
        chunk = self._chunks.popleft()
        self._size -= len(chunk)
        return chunk

    def _feed(self, chunk: bytes) -> None:
        if self._follows_gap:
            self._follows_gap = False
            self._lines.close()  # the line before the gap does not continue after it
        self._lines.feed(chunk)
