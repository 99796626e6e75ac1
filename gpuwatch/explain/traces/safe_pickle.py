"""A reader of pickles that builds plain data and nothing else.

A pickle is a program for a stack machine, and Python's own reader runs it: it imports, calls and builds what the file
says, and lets a short file claim any amount of memory. This one knows only the instructions for numbers, texts, bytes,
lists, tuples and dictionaries with texts as keys; any other ends it. Instructions, values, depth of the stack and the
memo are bounded by constants. Shared values stay shared, and may contain themselves, so whoever walks them must bound
its own steps (:mod:`gpuwatch.explain.traces.torch_snapshot`).

Why not ``pickle.Unpickler`` with a ``find_class`` that refuses: a few bytes of a file (``LONG_BINPUT``) make it
allocate gigabytes, so it would need a process of its own with a limit of memory. It would be 7 to 12 times faster, but
reading a snapshot of 1 to 4 MB takes only a third of the time in which it is explained.

Instructions: ``pickletools`` of the standard library, of those that pickles of protocols 2 to 5 have for such data.
"""

from __future__ import annotations

import struct
from typing import Any

from gpuwatch.core import input_size_limits
from gpuwatch.explain.traces import InvalidTrace

MAX_VALUES = 12_000_000
"""Values of a file: about 1.2 GB in the worst case. A snapshot has some fifty for each allocation of its history."""
_MAX_STEPS = 60_000_000
_MAX_UNORDERED_MEMO_ENTRIES = 100_000
"""Entries of the memo that are not numbered one after another, as Python's own pickles are."""
_MAX_STACK_ENTRIES = 1_000_000
_MAX_NUMBER_BYTES = 16
"""Bytes of a whole number: more would take long to print."""

_U16, _I32, _U32, _F64 = (struct.Struct(form).unpack_from for form in ("<H", "<i", "<I", ">d"))


class _Memo:
    """Values that a pickle refers to by number."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._out_of_order: dict[int, Any] = {}

    def put(self, number: int, value: Any) -> None:
        if number == len(self.values):
            self.values.append(value)
        elif number < len(self.values):
            self.values[number] = value
        elif len(self._out_of_order) < _MAX_UNORDERED_MEMO_ENTRIES:
            self._out_of_order[number] = value
        else:
            raise InvalidTrace(f"its memo has more than {_MAX_UNORDERED_MEMO_ENTRIES:,} gaps")

    def get(self, number: int) -> Any:
        if number < len(self.values):
            return self.values[number]
        if number not in self._out_of_order:
            raise InvalidTrace("it refers to a value that it does not have")
        return self._out_of_order[number]


def is_pickle(start: bytes) -> bool:
    """Whether a file begins as a pickle of protocol 2 to 5."""
    return len(start) > 2 and start[0] == 0x80 and 2 <= start[1] <= 5 and start[2:3] in b"\x95}](cNXu"


def load(data: bytes) -> Any:
    """The value; :class:`InvalidTrace` for anything but plain data."""
    try:
        return _load(data)
    except (IndexError, struct.error):
        raise InvalidTrace("it is truncated, or takes values that are not there") from None


def _load(data: bytes) -> Any:  # one loop: a call for each of a million instructions would double its time
    limit = input_size_limits.ALLOCATOR_SNAPSHOT
    stack: list[Any] = []
    marks: list[int] = []
    memo = _Memo()
    known = memo.values
    texts: dict[bytes, str] = {}
    push = stack.append
    at = value_count = 0
    end = len(data)
    for _ in range(_MAX_STEPS):
        code = data[at]
        at += 1
        if code == 0x94:  # MEMOIZE
            known.append(stack[-1])
            continue
        if len(stack) > _MAX_STACK_ENTRIES:
            raise InvalidTrace(f"its stack is deeper than {_MAX_STACK_ENTRIES:,}")
        if code == 0x68:  # BINGET
            push(memo.get(data[at]))
            at += 1
            continue
        if code == 0x6A:  # LONG_BINGET
            push(memo.get(_U32(data, at)[0]))
            at += 4
            continue
        value_count += 1
        if value_count > MAX_VALUES:
            raise InvalidTrace(f"it has more than {MAX_VALUES:,} values")
        if code == 0x4A:  # BININT
            push(_I32(data, at)[0])
            at += 4
        elif code == 0x4B:  # BININT1
            push(data[at])
            at += 1
        elif code == 0x4D:  # BININT2
            push(_U16(data, at)[0])
            at += 2
        elif code == 0x8A:  # LONG1
            size = data[at]
            if size > _MAX_NUMBER_BYTES:
                raise InvalidTrace(f"it has an integer of {size} bytes")
            at += 1
            _check_within(size, at, end)
            push(int.from_bytes(data[at : at + size], "little", signed=True))
            at += size
        elif code == 0x8C:  # SHORT_BINUNICODE
            size = data[at]
            at += 1
            raw = data[at : at + size]
            text = texts.get(raw)
            if text is None:
                _check_within(size, at, end)
                text = texts[raw] = raw.decode("utf-8", "replace")
            push(text)
            at += size
        elif code == 0x58:  # BINUNICODE
            (size,) = _U32(data, at)
            at += 4
            _check_within(size, at, end)
            push(data[at : at + size].decode("utf-8", "replace"))
            at += size
        elif code == 0x75:  # SETITEMS
            _set_items(stack, marks.pop())
        elif code == 0x65:  # APPENDS
            items = _pop_above(stack, marks.pop())
            _as_list(stack[-1]).extend(items)
        elif code == 0x28:  # MARK
            if len(marks) >= limit.depth:
                raise InvalidTrace(limit.too_deep)
            marks.append(len(stack))
        elif code == 0x7D:  # EMPTY_DICT
            push({})
        elif code == 0x5D:  # EMPTY_LIST
            push([])
        elif code == 0x29:  # EMPTY_TUPLE
            push(())
        elif code == 0x73:  # SETITEM
            _set_items(stack, len(stack) - 2)
        elif code == 0x61:  # APPEND
            item = stack.pop()
            _as_list(stack[-1]).append(item)
        elif code in (0x85, 0x86, 0x87):  # TUPLE1, TUPLE2, TUPLE3
            push(tuple(_pop_above(stack, len(stack) - (code - 0x84))))
        elif code == 0x74:  # TUPLE
            push(tuple(_pop_above(stack, marks.pop())))
        elif code == 0x4E:  # NONE
            push(None)
        elif code == 0x88 or code == 0x89:  # NEWTRUE, NEWFALSE
            push(code == 0x88)
        elif code == 0x47:  # BINFLOAT
            push(_F64(data, at)[0])
            at += 8
        elif code == 0x71:  # BINPUT
            memo.put(data[at], stack[-1])
            at += 1
        elif code == 0x72:  # LONG_BINPUT
            memo.put(_U32(data, at)[0], stack[-1])
            at += 4
        elif code == 0x43 or code == 0x42:  # SHORT_BINBYTES, BINBYTES
            size, at = (data[at], at + 1) if code == 0x43 else (_U32(data, at)[0], at + 4)
            _check_within(size, at, end)
            push(data[at : at + size])
            at += size
        elif code == 0x95:  # FRAME: where a chunk ends, which does not matter here
            at += 8
        elif code == 0x80:  # PROTO
            if data[at] > 5:
                raise InvalidTrace(f"its protocol {data[at]} is unknown")
            at += 1
        elif code == 0x2E:  # STOP
            return stack.pop()
        elif code == 0x30:  # POP
            if marks and marks[-1] == len(stack):
                marks.pop()
            else:
                stack.pop()
        elif code == 0x31:  # POP_MARK
            _pop_above(stack, marks.pop())
        else:
            if code in _CODE_RUNNING:
                raise InvalidTrace(f"it would run code ({_CODE_RUNNING[code]}), which this reader never does")
            raise InvalidTrace(f"it has an instruction that plain data does not need (0x{code:02x})")
    raise InvalidTrace(f"it has more than {_MAX_STEPS:,} instructions")


_CODE_RUNNING = {
    0x63: "GLOBAL", 0x93: "STACK_GLOBAL", 0x52: "REDUCE", 0x62: "BUILD", 0x69: "INST", 0x6F: "OBJ", 0x81: "NEWOBJ",
    0x92: "NEWOBJ_EX", 0x50: "PERSID", 0x51: "BINPERSID", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4",
}  # fmt: skip


def _check_within(size: int, at: int, end: int) -> None:
    if size > end - at:
        raise InvalidTrace("a value is truncated")


def _pop_above(stack: list[Any], mark: int) -> list[Any]:
    if not 0 <= mark <= len(stack):
        raise IndexError
    items = stack[mark:]
    del stack[mark:]
    return items


def _as_list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise InvalidTrace("it adds items to something that is not a list")
    return value


def _set_items(stack: list[Any], mark: int) -> None:
    """Moves the pairs above ``mark`` into the dictionary below them. Other keys than texts could be made to collide."""
    items = _pop_above(stack, mark)
    if type(target := stack[-1]) is not dict:
        raise InvalidTrace("it sets items of something that is not a dictionary")
    if len(items) % 2:
        raise InvalidTrace("it sets an item without a value")
    for key in items[::2]:
        if type(key) is not str:
            raise InvalidTrace("it has a dictionary whose keys are not strings")
    target.update(zip(items[::2], items[1::2], strict=True))
