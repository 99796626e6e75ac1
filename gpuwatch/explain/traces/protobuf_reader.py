"""A reader of protobuf's wire format (https://protobuf.dev/programming-guides/encoding), without its compiler.

It walks a message once, in place: nothing is copied or recursed into but what a caller asks for, so no input can make
it loop or use more memory than the file has. Groups (wire types 3 and 4), which no current format uses, end it.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.explain.traces import InvalidTrace

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The unsigned number at ``at``, and where the next value begins."""
    number = shift = 0
    while True:
        if at >= end or shift > 63:
            raise InvalidTrace("a number is truncated" if at >= end else "a number has more than 64 bits")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of the message in ``data[at:end]``: number, wire type, and two numbers.

    These are the value and 0 for a varint; else where the value begins and ends.
    """
    while at < end:
        byte = data[at]
        if byte < 0x80:
            key = byte
            at += 1
        else:
            key, at = varint(data, at, end)
        kind = key & 7
        if kind == VARINT:
            value, at = varint(data, at, end)
            yield key >> 3, kind, value, 0
            continue
        if kind == BYTES:
            size, at = varint(data, at, end)
        elif kind == FIXED64:
            size = 8
        elif kind == FIXED32:
            size = 4
        else:
            raise InvalidTrace(f"unknown wire type {kind}")
        if size > end - at:
            raise InvalidTrace("a value is truncated")
        yield key >> 3, kind, at, at + size
        at += size


def signed(number: int) -> int:
    """A varint of type int64 as a signed number."""
    return number - (1 << 64) if number >> 63 else number


def text(data: bytes, at: int, end: int) -> str:
    """A string; what is not UTF-8 (TensorFlow writes some) is replaced."""
    return data[at:end].decode("utf-8", "replace")
