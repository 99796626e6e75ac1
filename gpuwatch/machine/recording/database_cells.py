"""How data is stored in the cells of a recording: compressed where it is large, and with a checksum.

A database finds damage in its structure, not in what it holds.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise

import msgspec

from gpuwatch.machine.history.sample_frames import DamagedData, decoded, decompress_all, decompress_zlib, encoded

try:
    import lzma
except ImportError:  # Python was built without liblzma
    lzma = None  # type: ignore[assignment]

_XZ_MAGIC = b"\xfd7zXZ"
_DICTIONARY_BYTES = 1 << 20
"""Bytes: more than most blocks have. The preset's own takes 94 MB of memory."""
_MAX_MEMORY_BYTES = 64 << 20
_CHECKSUM = struct.Struct(">I")
_MICROSECONDS_PER_SECOND = 1e6
_decode_steps = msgspec.msgpack.Decoder(list[int]).decode


def checksum(*numbers: float, data: bytes = b"") -> int:
    """Checksum of the numbers of a row and its data. Raises :class:`DamagedData` for a value that is not a number."""
    try:
        return zlib.crc32(struct.pack(f"<{len(numbers)}d", *numbers), zlib.crc32(data))
    except (struct.error, TypeError, OverflowError) as error:
        raise DamagedData(str(error)) from error


def with_checksum(data: bytes, *numbers: float) -> bytes:
    """The data with a checksum, also of numbers that are stored beside it."""
    return data + _CHECKSUM.pack(checksum(*numbers, data=data))


def without_checksum(data: object, *numbers: float) -> bytes:
    """The data that :func:`with_checksum` stored. Raises :class:`DamagedData` if they do not fit the checksum."""
    if not isinstance(data, bytes):  # a database may have anything anywhere
        raise DamagedData("not bytes")
    body = data[: -_CHECKSUM.size]
    if data[-_CHECKSUM.size :] != _CHECKSUM.pack(checksum(*numbers, data=body)):
        raise DamagedData("wrong checksum")
    return body


def encoded_with_checksum(what: object, *numbers: float) -> bytes:
    """A value as MessagePack with a checksum, also of numbers that are stored beside it."""
    return with_checksum(encoded(what), *numbers)


def pack_times(times: Sequence[float]) -> bytes:
    """Times in seconds since the epoch, at least one, as microseconds and steps."""
    microseconds = [round(at * _MICROSECONDS_PER_SECOND) for at in times]
    return encoded_with_checksum([microseconds[0], *(after - before for before, after in pairwise(microseconds))])


def unpack_times(data: object) -> list[float]:
    """Times in seconds since the epoch, from :func:`pack_times`. Raises :class:`DamagedData`."""
    steps = decoded(_decode_steps, without_checksum(data))
    return [microseconds / _MICROSECONDS_PER_SECOND for microseconds in accumulate(steps)]


def compress(data: bytes) -> bytes:
    """The data by xz, a quarter smaller than by zlib; by zlib where Python was built without xz."""
    if lzma is None:
        return with_checksum(zlib.compress(data, 6))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": _DICTIONARY_BYTES}]
    return with_checksum(lzma.compress(data, check=lzma.CHECK_NONE, filters=filters))


def decompress(data: object) -> bytes:
    """The data that :func:`compress` stored. Raises :class:`DamagedData`."""
    body = without_checksum(data)
    if not body.startswith(_XZ_MAGIC):
        return decompress_zlib(body)
    if lzma is None:
        raise DamagedData("compressed with xz, which this Python was built without")
    return decompress_all(lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_MEMORY_BYTES), body, lzma.LZMAError)
