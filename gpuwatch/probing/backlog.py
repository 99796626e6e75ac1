"""Output that has been passed on and waits to be understood, so that no program waits for our parsers.

A program may write faster than a log can be parsed. What waits is bounded; beyond that, stretches in which
nothing can stand that a parser looks for are left out, which is cheap to tell, and the others are parsed
at once, however long the program has to wait for that.
"""

from __future__ import annotations

from collections import deque

from gpuwatch.probing.streams import Lines, Sink

MOST = 8 << 20
"""Bytes that may wait."""
_SLICE = 1 << 16
# A line of C++ sources, an exception: what remains of a log when everything else is left out.
_TELLING = (b".cc:", b"rror", b"emory")


class Backlog:
    """Chunks in, lines out, when there is time."""

    def __init__(self, sink: Sink) -> None:
        self._lines = Lines(sink)
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._gap = False
        self.left_out = 0
        """Bytes that were passed on and never looked at."""

    def __len__(self) -> int:
        """Bytes that wait."""
        return self._size

    def put(self, chunk: bytes) -> None:
        """Takes bytes as they come."""
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
        """Parses one stretch; False when nothing waits."""
        if not self._chunks:
            return False
        self._feed(self._take())
        return True

    def close(self) -> None:
        """Parses all that waits, and the last line, which may have no end."""
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
            self._lines.close()  # what stood before the gap does not go on after it
        self._lines.feed(chunk)
