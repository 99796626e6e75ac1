"""Reads logs that gzip, bzip2, xz or zstd compressed, as they arrive, with constant memory."""

from __future__ import annotations

import bz2
import importlib
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from gpuwatch.core import reader_limits
from gpuwatch.core.errors import UsageError

_PIECE = 1 << 18


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""

    @property
    def unused_data(self) -> bytes:
        """What follows its end."""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """At most ``max_length`` bytes of text."""


class _Gzip:
    """Gives zlib's object the behaviour of the others: what it could not hand out yet is kept inside."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


class _Zstd:
    """The zstandard package: hands out all text of its input, of which it gets little at once."""

    def __init__(self, module: object) -> None:
        make: Callable[..., object] = module.ZstdDecompressor  # type: ignore[attr-defined]
        self._inner = make(max_window_size=reader_limits.UNPACKING.bytes).decompressobj()  # type: ignore[attr-defined]
        self._waiting = b""
        self.eof = False
        self.unused_data = b""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        # A block of zstd is at most 128 KiB of text; 256 bytes of input hold some dozens of them.
        self._waiting += data
        piece, self._waiting = self._waiting[:256], self._waiting[256:]
        text: bytes = self._inner.decompress(piece)
        self.eof = self._inner.eof
        if self.eof:
            self.unused_data = self._inner.unused_data + self._waiting
            self._waiting = b""
        return text

    @property
    def waiting(self) -> bool:
        """Whether input is left that was not looked at."""
        return bool(self._waiting)


_Make = Callable[[str], _Decompressor]


def _zstd(name: str) -> _Decompressor:
    try:
        standard = importlib.import_module("compression.zstd")  # Python 3.14
    except ImportError:
        try:
            return _Zstd(importlib.import_module("zstandard"))
        except ImportError:
            raise UsageError(
                f"{name} is compressed with zstd, which this Python cannot read",
                hint=f"zstdcat {name} | gpuwatch explain -, or pip install zstandard",
            ) from None
    found: _Decompressor = standard.ZstdDecompressor()
    return found


_FORMATS: tuple[tuple[bytes, _Make], ...] = (
    (b"\x1f\x8b", lambda _: _Gzip()),
    (b"BZh", lambda _: bz2.BZ2Decompressor()),
    (b"\xfd7zXZ\0", lambda _: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=reader_limits.UNPACKING.bytes)),
    (b"(\xb5/\xfd", _zstd),
)


def decompressed(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The chunks themselves, or the text that they are compressed from; :class:`UsageError` if they are broken."""
    first = next(chunks, b"")
    make = next((make for mark, make in _FORMATS if first.startswith(mark)), None)
    if make is None:
        if first:
            yield first
            yield from chunks
        return
    total = 0
    try:
        for text in _texts(first, chunks, make, name):
            total += len(text)
            if total > reader_limits.LOG.bytes:
                raise UsageError(f"cannot read {name}: {reader_limits.LOG.too_large}")
            yield text
    except (zlib.error, OSError, EOFError, lzma.LZMAError, ValueError) as error:
        raise UsageError(f"cannot decompress {name}: {str(error)[:100]}") from error
    except Exception as error:
        if type(error).__name__ == "ZstdError":
            raise UsageError(f"cannot decompress {name}: {str(error)[:100]}") from error
        raise


def _texts(first: bytes, chunks: Iterator[bytes], make: _Make, name: str) -> Iterator[bytes]:
    reader, data = make(name), first
    while True:
        text = reader.decompress(data, _PIECE)
        data = b""
        if text:
            yield text
        if reader.eof:
            # Some write a file as several streams, and pad it with zeros.
            data = reader.unused_data.lstrip(b"\0") or next(chunks, b"")
            if not data:
                return
            reader = make(name)
        elif not text and not getattr(reader, "waiting", False):
            data = next(chunks, b"")
            if not data:
                raise EOFError("it is cut off")
