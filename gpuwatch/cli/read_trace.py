"""Files that are no logs but recordings of other tools: read whole, within a bound."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.terminal_support import file_name

if TYPE_CHECKING:
    from gpuwatch.core.model.explanation import Explanation


_GZIP = b"\x1f\x8b"


def recording(descriptor: int, path: Path) -> Explanation | None:
    """The explanation of a file that is no log; None for a log, or a pipe."""
    from gpuwatch.explain.diagnosis import explain_trace_file
    from gpuwatch.explain.traces.invalid_trace import InvalidTrace

    try:
        start = os.pread(descriptor, explain_trace_file.START_BYTES, 0)
    except OSError:
        return None  # a pipe, or unreadable: reading it as a log says so
    packed = start.startswith(_GZIP)
    kind = explain_trace_file.kind_of(_inflated(start, explain_trace_file.START_BYTES) if packed else start)
    if kind is None:
        return None
    limit = explain_trace_file.LIMITS[kind]
    with os.fdopen(os.dup(descriptor), "rb") as file:
        content = file.read(limit.bytes + 1)
    if packed:
        content = _inflated(content, limit.bytes + 1)
    if len(content) > limit.bytes:
        raise UsageError(f"cannot read {file_name(path)}, a {kind}: {limit.too_large}")
    try:
        return explain_trace_file.explain_recording(kind, content, str(path))
    except InvalidTrace as error:
        raise UsageError(f"cannot read {file_name(path)}, a {kind}: {error}") from error


def recording_at(path: Path) -> Explanation | None:
    """The same of a path; None also if it cannot be opened."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return recording(descriptor, path)
    finally:
        os.close(descriptor)


def _inflated(data: bytes, most: int) -> bytes:
    """Up to ``most`` bytes from the start of a gzip file's content; of a truncated file, what can be read."""
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, most)
    except zlib.error:
        return b""
