"""How snapshots travel from the collector's process: as frames (:mod:`gpuwatch.history.frames`).

Beside those of the samples there are frames that no delta counts from: what is there before the first sample, and the
error that ended the collector.
"""

from __future__ import annotations

import msgspec

from gpuwatch.history.frames import HEAD_BYTES, KEY, FrameDecoder, FrameEncoder, encoded, framed, head
from gpuwatch.model.snapshot import Snapshot

__all__ = ["FAILURE", "HEAD_BYTES", "KEY", "MEANWHILE", "PREVIEW", "Receiver", "Sender", "head"]

PREVIEW, MEANWHILE, FAILURE = b"P", b"M", b"F"
"""Kinds of frames. A preview has the devices alone: processes have not been looked at yet. A frame of the meanwhile
has the host and its processes alone: the driver has not answered yet. A failure is text: the error of gpuwatch itself
that ended the collector."""


class Sender:
    """Turns snapshots (of :meth:`gpuwatch.monitor.collector.Collector.sample`) into frames."""

    def __init__(self) -> None:
        self.frame = FrameEncoder().frame
        """The next snapshot."""

    @staticmethod
    def preview(snapshot: Snapshot) -> bytes:
        """A frame for the first picture, which no delta counts from."""
        return framed(PREVIEW, encoded(snapshot))

    @staticmethod
    def meanwhile(snapshot: Snapshot) -> bytes:
        """A frame about the host alone, which no delta counts from. Safe to call from another thread."""
        return framed(MEANWHILE, encoded(snapshot))

    @staticmethod
    def failure(text: str) -> bytes:
        """The last frame: what ended the collector, for the user."""
        return framed(FAILURE, text.encode())


class Receiver:
    """Turns frames into snapshots again; one for each collector's process."""

    def __init__(self) -> None:
        self._decoder = FrameDecoder()

    def receive(self, kind: bytes, body: bytes) -> Snapshot:
        """The snapshot of a frame; what has not changed is the same object as in the one before."""
        if kind in (PREVIEW, MEANWHILE):
            return msgspec.msgpack.decode(body, type=Snapshot)
        self._decoder.take(kind, body)
        return self._decoder.snapshot()
