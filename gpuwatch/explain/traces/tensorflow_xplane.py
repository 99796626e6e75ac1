"""TensorFlow's profiles (``*.xplane.pb``): allocations and frees of its allocators.

Format: tsl/profiler/protobuf/xplane.proto. Each allocator writes an event for every allocation and free, with the
bytes in use after it (tsl/framework/bfc_allocator.cc, AddTraceMe). Threads have their own lines, so events are sorted
by time.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple

from gpuwatch.explain.traces.allocation_replay import AllocatorEvent
from gpuwatch.explain.traces.protobuf_reader import BYTES, FIXED64, VARINT, fields, signed, text

MAX_EVENTS = 600_000
"""Events read of one file; a million take about 300 MB."""
_FIRST_PLANE = re.compile(
    rb"\n[\x80-\xff]{0,9}[\0-\x7f](?:\x08[\x80-\xff]{0,9}[\0-\x7f])?\x12.(?:/host:|/device:|Task Env|/task:)", re.DOTALL
)
"""The first plane: its length, its number if it has one, its name."""
_ALLOCATION, _FREE = "MemoryAllocation", "MemoryDeallocation"
_NUMBERS = (
    "addr", "allocation_bytes", "requested_bytes", "bytes_allocated", "bytes_available", "peak_bytes_in_use",
    "data_type",
)  # fmt: skip
_STATS = frozenset({*_NUMBERS, "allocator_name", "fragmentation", "tf_op", "region_type", "shape"})
_TYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64", 9: "int64",
    10: "bool", 11: "qint8", 12: "quint8", 13: "qint32", 14: "bfloat16", 15: "qint16", 16: "quint16", 17: "uint16",
    18: "complex128", 19: "float16", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64", 24: "float8_e5m2",
    25: "float8_e4m3fn", 29: "int4", 30: "uint4",
}  # fmt: skip
"""tensorflow/core/framework/types.proto."""


class Profile(NamedTuple):
    """The memory events of a file, by allocator."""

    events: dict[str, list[AllocatorEvent]]
    left_out: int
    """Events beyond :data:`MAX_EVENTS`."""


def is_xplane(start: bytes) -> bool:
    """Whether a file begins as a profile: field 1 is a plane, which begins with its name or number."""
    return _FIRST_PLANE.match(start) is not None


def read(data: bytes) -> Profile:
    """The memory events of a profile.

    :class:`~gpuwatch.explain.traces.InvalidTrace` if it is none, or is cut off.
    """
    found: dict[str, list[AllocatorEvent]] = {}
    left_out = count = 0
    for number, kind, at, end in fields(data, 0, len(data)):
        if number != 1 or kind != BYTES:
            continue
        for allocator, event in _Plane(data, at, end).events():
            if count >= MAX_EVENTS:
                left_out += 1
                continue
            count += 1
            found.setdefault(allocator, []).append(event)
    for events in found.values():
        events.sort(key=itemgetter(0))
    return Profile(found, left_out)


class _Plane:
    """A plane: lines of events, and the names that these refer to by number."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self._data = data
        self._lines: list[tuple[int, int]] = []
        self._frees: dict[int, bool] = {}
        """By kind of event: whether it is a free; others than allocations and frees are left out."""
        self._names: dict[int, str] = {}
        for number, kind, start, stop in fields(data, at, end):
            if kind != BYTES:
                continue
            if number == 3:
                self._lines.append((start, stop))
            elif number == 4:
                key, name = _key_and_name(data, start, stop)
                if name in (_ALLOCATION, _FREE):
                    self._frees[key] = name == _FREE
            elif number == 5:
                key, name = _key_and_name(data, start, stop)
                self._names[key] = name
        self._stats = {key: name for key, name in self._names.items() if name in _STATS}

    def events(self) -> Iterator[tuple[str, AllocatorEvent]]:
        """The memory events of the plane, each after the name of its allocator."""
        data = self._data
        for at, end in self._lines if self._frees else ():
            began = 0
            events: list[tuple[int, int]] = []
            for number, kind, start, stop in fields(data, at, end):
                if number == 3 and kind == VARINT:
                    began = signed(start) * 1000
                elif number == 4 and kind == BYTES:
                    of_kind = data[start : start + 1] == b"\x08" and data[start + 1] < 0x80
                    if not of_kind or data[start + 1] in self._frees:
                        events.append((start, stop))
            for start, stop in events:
                if (found := self._event(start, stop, began)) is not None:
                    yield found

    def _event(self, at: int, end: int, began: int) -> tuple[str, AllocatorEvent] | None:
        frees: bool | None = None
        offset = 0
        values: dict[str, int | float | str] = {}
        for number, kind, start, stop in fields(self._data, at, end):
            if number == 1 and kind == VARINT:
                frees = self._frees.get(signed(start))
                if frees is None:
                    return None
            elif number == 2 and kind == VARINT:
                offset = signed(start)
            elif number == 4 and kind == BYTES:
                self._add_stat(start, stop, values)
        if frees is None:
            return None
        address, size, requested, in_use, available, peak, dtype = [
            value if isinstance(value := values.get(name), int) else 0 for name in _NUMBERS
        ]
        shape, fragmentation = str(values.get("shape", "")), values.get("fragmentation")
        # What is allocated without a type and shape has those of TensorFlow's default, which say nothing.
        known = requested > 0 and shape not in ("", "[0]")
        return str(values.get("allocator_name", "")), AllocatorEvent(
            began + offset,
            frees,
            address,
            size,
            requested,
            in_use,
            available,
            peak,
            float(fragmentation) if isinstance(fragmentation, (int, float)) else 0.0,
            str(values.get("tf_op", "")),
            str(values.get("region_type", "")),
            _TYPES.get(dtype, "") if known else "",
            shape if known else "",
        )

    def _add_stat(self, at: int, end: int, values: dict[str, int | float | str]) -> None:
        """Adds a stat to ``values``, by its name."""
        data, name = self._data, None
        for number, kind, start, stop in fields(data, at, end):
            if number == 1:
                if kind != VARINT:
                    return
                name = self._stats.get(signed(start))
                if name is None:
                    return
            elif name is None:
                return  # TensorFlow writes the name first
            elif number == 7 and kind == VARINT:
                values[name] = self._names.get(start, "")
            elif kind == VARINT:
                values[name] = signed(start) if number == 4 else start
            elif number == 2 and kind == FIXED64:
                (values[name],) = struct.unpack_from("<d", data, start)
            elif number == 5 and kind == BYTES:
                values[name] = text(data, start, stop)


def _key_and_name(data: bytes, at: int, end: int) -> tuple[int, str]:
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
