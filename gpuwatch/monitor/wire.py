"""The frames that the collector's process sends (:mod:`gpuwatch.history.frames`).

Besides those of samples there are frames that are not part of their sequence of deltas: what is known before the first
sample, and the error that ended the collector.
"""

from __future__ import annotations

import msgspec

from gpuwatch.history.frames import FrameDecoder, encoded, framed
from gpuwatch.model.snapshot import Snapshot

PREVIEW, MEANWHILE, FAILURE = b"P", b"M", b"F"
"""Kinds of frames. A preview has the devices but no details of processes. A meanwhile frame has only the host and its
processes: the driver has not answered yet. A failure is text: the error of gpuwatch itself that ended the collector."""


def preview(snapshot: Snapshot) -> bytes:
    """A frame with the devices of the first sample."""
    return framed(PREVIEW, encoded(snapshot))


def meanwhile(snapshot: Snapshot) -> bytes:
    """A frame with the host alone."""
    return framed(MEANWHILE, encoded(snapshot))


def failure(text: str) -> bytes:
    """The last frame: the error that ended the collector, for the user."""
    return framed(FAILURE, text.encode())


class Receiver:
    """Decodes the frames of one collector's process."""

    def __init__(self) -> None:
        self._decoder = FrameDecoder()

    def receive(self, kind: bytes, body: bytes) -> Snapshot:
        """The snapshot of a frame; unchanged parts are the same objects as in the previous one."""
        if kind in (PREVIEW, MEANWHILE):
            return msgspec.msgpack.decode(body, type=Snapshot)
        self._decoder.take(kind, body)
        return self._decoder.snapshot()
