"""Writes protobuf's wire format (https://protobuf.dev/programming-guides/encoding).

:mod:`gpuwatch.explain.traces.protobuf_reader` reads it. A message is the concatenation of its fields: these functions
return bytes to be joined.
"""

from __future__ import annotations

import struct

_MASK = (1 << 64) - 1
_double = struct.Struct("<d").pack


def varint(value: int) -> bytes:
    """A number; a negative one as int64, in ten bytes."""
    value &= _MASK
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer_field(field: int, value: int) -> bytes:
    """A field of an integer type, bool or enumeration."""
    return varint(field << 3) + varint(value)


def double_field(field: int, value: float) -> bytes:
    """A field of type double: eight bytes."""
    return varint(field << 3 | 1) + _double(value)


def text_field(field: int, value: str) -> bytes:
    """A field of type string; what UTF-8 does not have, such as half a surrogate pair, is replaced."""
    return message_field(field, value.encode("utf-8", "replace"))


def message_field(field: int, content: bytes) -> bytes:
    """A field that is a message, or bytes: the length comes first."""
    return varint(field << 3 | 2) + varint(len(content)) + content
