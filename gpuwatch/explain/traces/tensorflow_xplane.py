"""TensorFlow's profiles (``*.xplane.pb``): allocations and frees of its allocators.

Format: tsl/profiler/protobuf/xplane.proto. Each allocator writes an event for every allocation and free, with the
bytes in use after it (tsl/framework/bfc_allocator.cc, AddTraceMe). Threads have their own lines, so events are sorted
by time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple

from gpuwatch.explain.traces.invalid_trace import InvalidTrace
from gpuwatch.explain.traces.protobuf_reader import BYTES, FIXED64, VARINT, fields, signed, text

MAX_EVENTS = 600_000
"""Events read of one file; a million take about 300 MB."""
_ALLOCATION, _FREE = "MemoryAllocation", "MemoryDeallocation"
_NAMES = {
    "allocator_name": 0, "bytes_allocated": 1, "bytes_available": 2, "fragmentation": 3, "peak_bytes_in_use": 4,
    "requested_bytes": 5, "allocation_bytes": 6, "addr": 7, "tf_op": 8, "region_type": 9, "data_type": 10,
    "shape": 11,
}  # fmt: skip
_TYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64", 9: "int64",
    10: "bool", 11: "qint8", 12: "quint8", 13: "qint32", 14: "bfloat16", 15: "qint16", 16: "quint16", 17: "uint16",
    18: "complex128", 19: "float16", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64", 24: "float8_e5m2",
    25: "float8_e4m3fn", 29: "int4", 30: "uint4",
}  # fmt: skip
"""tensorflow/core/framework/types.proto."""


class Event(NamedTuple):
    """An allocation or a free, in bytes."""

    at: int
    """Picoseconds since the recording began."""
    frees: bool
    address: int
    size: int
    """Bytes taken from the pool."""
    requested: int
    in_use: int
    """Bytes in use of the allocator after it."""
    available: int
    """Bytes that it may still take."""
    peak: int
    """Most bytes in use so far."""
    fragmentation: float
    """Share of the pool's free memory outside its largest free block."""
    op: str
    region: str = ""
    """``output``, ``temp``, ``persist``, ``dynamic``; empty if unknown."""
    dtype: str = ""
    shape: str = ""
    """``[64,512]``; empty if unknown."""


class Profile(NamedTuple):
    """The memory events of a file, by allocator."""

    events: dict[str, list[Event]]
    left_out: int
    """Events beyond :data:`MAX_EVENTS`."""


def is_xplane(start: bytes) -> bool:
    """Whether a file begins as a profile: field 1 is a plane, which begins with its name or number."""
    try:
        for number, kind, at, end in fields(start, 0, len(start)):
            return number == 1 and kind == BYTES and _plane_begins(start, at, min(end, len(start)))
    except InvalidTrace:
        pass
    # The first plane may be longer than what was read of the file.
    if not start.startswith(b"\n"):
        return False
    at = 1
    while at < min(len(start), 11) and start[at] >= 0x80:
        at += 1
    return _plane_begins(start, at + 1, len(start))


def _plane_begins(data: bytes, at: int, end: int) -> bool:
    known = (b"/host:", b"/device:", b"Task Env", b"/task:")
    if data[at : at + 1] == b"\x08":  # its number
        at += 1
        while at < end and data[at] >= 0x80:
            at += 1
        at += 1
    return data[at : at + 1] == b"\x12" and data[at + 2 : at + 12].startswith(known)


def read(data: bytes) -> Profile:
    """The memory events of a profile. :class:`InvalidTrace` if it is none, or is cut off."""
    found: dict[str, list[Event]] = {}
    left_out = count = 0
    for number, kind, at, end in fields(data, 0, len(data)):
        if number != 1 or kind != BYTES:
            continue
        for allocator, event in _plane(data, at, end):
            if count >= MAX_EVENTS:
                left_out += 1
                continue
            count += 1
            found.setdefault(allocator, []).append(event)
    for events in found.values():
        events.sort(key=itemgetter(0))
    return Profile(found, left_out)


def _plane(data: bytes, at: int, end: int) -> Iterator[tuple[str, Event]]:
    lines: list[tuple[int, int]] = []
    kinds: dict[int, bool] = {}
    names: dict[int, str] = {}
    for number, kind, start, stop in fields(data, at, end):
        if kind != BYTES:
            continue
        if number == 3:
            lines.append((start, stop))
        elif number == 4:
            key, name = _entry(data, start, stop)
            if name in (_ALLOCATION, _FREE):
                kinds[key] = name == _FREE
        elif number == 5:
            key, name = _entry(data, start, stop)
            names[key] = name
    if not kinds:
        return
    wanted = {key: _NAMES[name] for key, name in names.items() if name in _NAMES}
    for start, stop in lines:
        yield from _line(data, start, stop, kinds, wanted, names)


def _entry(data: bytes, at: int, end: int) -> tuple[int, str]:
    """Key and name of an entry of event_metadata or stat_metadata."""
    key, name = 0, ""
    for number, kind, start, stop in fields(data, at, end):
        if number == 1 and kind == VARINT:
            key = signed(start)
        elif number == 2 and kind == BYTES:
            for inner, inner_kind, begin, until in fields(data, start, stop):
                if inner == 2 and inner_kind == BYTES:
                    name = text(data, begin, until)
    return key, name


def _line(
    data: bytes, at: int, end: int, kinds: dict[int, bool], wanted: dict[int, int], names: dict[int, str]
) -> Iterator[tuple[str, Event]]:
    began = 0
    events: list[tuple[int, int]] = []
    for number, kind, start, stop in fields(data, at, end):
        if number == 3 and kind == VARINT:
            began = signed(start) * 1000
        elif number == 4 and kind == BYTES:
            if data[start : start + 1] == b"\x08" and data[start + 1] < 0x80 and data[start + 1] not in kinds:
                continue
            events.append((start, stop))
    for start, stop in events:
        found = _event(data, start, stop, kinds, wanted, names, began)
        if found is not None:
            yield found


def _event(
    data: bytes,
    at: int,
    end: int,
    kinds: dict[int, bool],
    wanted: dict[int, int],
    names: dict[int, str],
    began: int,
) -> tuple[str, Event] | None:
    frees: bool | None = None
    offset = 0
    values: list[int | float | str] = ["", 0, 0, 0.0, 0, 0, 0, 0, "", "", 0, ""]
    for number, kind, start, stop in fields(data, at, end):
        if number == 1 and kind == VARINT:
            frees = kinds.get(signed(start))
            if frees is None:
                return None
        elif number == 2 and kind == VARINT:
            offset = signed(start)
        elif number == 4 and kind == BYTES:
            _stat(data, start, stop, wanted, names, values)
    if frees is None:
        return None
    allocator, in_use, available, fragmentation, peak, requested, size, address, op, region, dtype, shape = values
    known = bool(requested) and shape not in ("", "[0]")
    return str(allocator), Event(
        began + offset,
        frees,
        _int_or_zero(address),
        _int_or_zero(size),
        _int_or_zero(requested),
        _int_or_zero(in_use),
        _int_or_zero(available),
        _int_or_zero(peak),
        float(fragmentation) if isinstance(fragmentation, (int, float)) else 0.0,
        str(op),
        str(region),
        # What is allocated without a type and shape has those of TensorFlow's default, which say nothing.
        _TYPES.get(_int_or_zero(dtype), "") if known else "",
        str(shape) if known else "",
    )


def _int_or_zero(value: int | float | str) -> int:
    return value if isinstance(value, int) else 0


def _stat(
    data: bytes,
    at: int,
    end: int,
    wanted: dict[int, int],
    names: dict[int, str],
    values: list[int | float | str],
) -> None:
    place: int | None = None
    for number, kind, start, stop in fields(data, at, end):
        if number == 1:
            if kind != VARINT:
                return
            place = wanted.get(signed(start))
            if place is None:
                return
        elif place is None:
            return  # TensorFlow writes the name first
        elif number == 7 and kind == VARINT:
            values[place] = names.get(start, "")
        elif kind == VARINT:
            values[place] = signed(start) if number == 4 else start
        elif number == 2 and kind == FIXED64:
            (values[place],) = struct.unpack_from("<d", data, start)
        elif number == 5 and kind == BYTES:
            values[place] = text(data, start, stop)
