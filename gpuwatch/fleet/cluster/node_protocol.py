"""How a node answers: lines of text that survive login banners, labels and other output; why one did not answer.

``gpuwatch-node/1 NODE KIND PAYLOAD``, the payload in base64. Lines stay below 1,024 bytes, which Slurm passes on whole.
Any other line is from another program: a message of the shell, or of a job's prolog.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Literal, get_args

from gpuwatch.core.safe_text import last_line

NOT_FOUND = "gpuwatch was not found there (give its path with --remote-command)"

_LINE_PREFIX = b"gpuwatch-node/1"
_MAX_PAYLOAD_BYTES = 600
"""Bytes of payload in one line."""
_MAX_LINE_BYTES = 4096
"""Bytes of a line beyond which it is no frame, and not kept."""
_MAX_OTHER_BYTES = 16 << 10
"""Bytes kept of other lines: the last ones."""
NO_NODE = "-"
"""Written by a node itself, which need not know what the launcher calls it."""

FrameKind = Literal["node", "lost", "hello", "progress", "stderr", "data", "end"]
"""``hello``: JSON of who answers; ``progress``: what it does now; ``stderr``: a piece of its stderr; ``data``: a piece
of the document, compressed; ``end``: JSON of how it ended. From a launcher that finds its nodes itself: ``node``: there
is a node of this name, with why nothing can start on it (empty if it can); ``lost``: why a node will send no more."""
_FRAME_KINDS: frozenset[str] = frozenset(get_args(FrameKind))


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a node."""

    kind: FrameKind
    payload: bytes
    node: str = NO_NODE


def encode_frame(kind: FrameKind, payload: bytes = b"", *, node: str = NO_NODE) -> bytes:
    """The payload as lines; several if it is long."""
    head = b" ".join((_LINE_PREFIX, node.encode(), kind.encode()))
    pieces = [payload[at : at + _MAX_PAYLOAD_BYTES] for at in range(0, len(payload), _MAX_PAYLOAD_BYTES)] or [b""]
    return b"".join(b" ".join((head, base64.b64encode(piece) or b"-")) + b"\n" for piece in pieces)


class NodeDecoder:
    """Finds the frames in a stream of bytes; memory use is bounded whatever arrives."""

    def __init__(self) -> None:
        self._unfinished_line = b""
        self._skipping = False
        self.other_bytes = 0
        """Number of bytes of output that is no frame."""
        self.other_output = b""
        """The end of that output."""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames completed by these bytes."""
        frames, other = [], []
        *lines, unfinished = (self._unfinished_line + data).split(b"\n")
        for line in lines:
            if self._skipping:
                self._skipping = False
                self.other_bytes += len(line)
                continue
            frame = _decode_line(line)
            if frame is not None:
                frames.append(frame)
            else:
                self.other_bytes += len(line) + 1
                other.append(line + b"\n")
        if other:
            self.other_output = (self.other_output + b"".join(other))[-_MAX_OTHER_BYTES:]
        if self._skipping or len(unfinished) > _MAX_LINE_BYTES:
            self._skipping = True
            self.other_bytes += len(unfinished)
            unfinished = b""
        self._unfinished_line = unfinished
        return frames


def _decode_line(line: bytes) -> Frame | None:
    start = line.find(_LINE_PREFIX)  # a label may stand before it
    if start < 0 or len(line) > _MAX_LINE_BYTES:
        return None
    parts = line[start:].split()
    if len(parts) != 4 or not parts[2].isascii():
        return None
    kind = parts[2].decode()
    if kind not in _FRAME_KINDS:
        return None
    try:
        payload = b"" if parts[3] == b"-" else base64.b64decode(parts[3], validate=True)
        return Frame(kind, payload, parts[1].decode())  # type: ignore[arg-type]  # one of the kinds
    except (binascii.Error, UnicodeDecodeError):
        return None


def why_no_answer(code: int, messages: str) -> str:
    """Why gpuwatch did not answer on a node, from the exit code and messages of the process that was to start it."""
    if "no such command: 'node'" in messages.lower():
        return "its gpuwatch is too old for this one"
    if code == 127 or re.search(r"No module named '?gpuwatch\b|: Command not found\.", messages):
        return NOT_FOUND
    if code == 126:
        return "gpuwatch cannot be executed there"
    last = last_line(re.sub(r"^srun: .*$", "", messages, flags=re.MULTILINE))  # Slurm repeats the exit code
    return f"exit code {code}" + (f": {last}" if last else "")
