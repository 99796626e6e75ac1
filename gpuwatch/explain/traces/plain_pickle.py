"""A reader of pickles that builds plain data and nothing else.

A pickle is a program for a stack machine, and Python's own reader runs it: it imports, calls and builds what the file
says, and lets a short file claim any amount of memory. This one knows only the instructions for numbers, texts, bytes,
lists, tuples and dictionaries with texts as keys; any other ends it. Instructions, values, depth of the stack and the
memo are bounded by constants. Shared values stay shared, and may contain themselves, so whoever walks them must bound
its own steps (:mod:`gpuwatch.explain.traces.torch_snapshot`).

Why not ``pickle.Unpickler`` with a ``find_class`` that refuses: a few bytes of a file (``LONG_BINPUT``) make it
allocate gigabytes, so it would need a process of its own with a limit of memory. It is 7 to 12 times faster for
snapshots of 1 to 4 MB, which is a third of the time in which they are explained.

Instructions: ``pickletools`` of the standard library, protocols 0 to 5.
"""

from __future__ import annotations

import struct
from typing import Any

from gpuwatch.core import reader_limits
from gpuwatch.explain.traces.invalid_trace import InvalidTrace

MAX_VALUES = 12_000_000
"""Values of a file: about 1.2 GB in the worst case. A snapshot has some fifty for each allocation of its history."""
_MAX_STEPS = 60_000_000
_MAX_UNORDERED_MEMO_ENTRIES = 100_000
"""Entries of the memo that are not numbered one after another, as Python's own pickles are."""
_MAX_STACK_ENTRIES = 1_000_000
_MAX_NUMBER_BYTES = 16
"""Bytes, or twice as many digits, of a whole number: more would take long to print."""
_MAX_LINE_BYTES = 1 << 16

_U16, _I32, _U32, _U64, _F64 = (struct.Struct(form).unpack_from for form in ("<H", "<i", "<I", "<Q", ">d"))


class _Memo:
    """Values that a pickle refers to by number."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._far: dict[int, Any] = {}

    def put(self, number: int, value: Any) -> None:
        if number == len(self.values):
            self.values.append(value)
        elif 0 <= number < len(self.values):
            self.values[number] = value
        elif len(self._far) < _MAX_UNORDERED_MEMO_ENTRIES:
            self._far[number] = value
        else:
            raise InvalidTrace(f"its memo has more than {_MAX_UNORDERED_MEMO_ENTRIES:,} gaps")

    def get(self, number: int) -> Any:
        if 0 <= number < len(self.values):
            return self.values[number]
        if number not in self._far:
            raise InvalidTrace("it refers to a value that it does not have")
        return self._far[number]


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
    limit = reader_limits.ALLOCATOR_SNAPSHOT
    stack: list[Any] = []
    marks: list[int] = []
    memo = _Memo()
    known = memo.values
    texts: dict[bytes, str] = {}
    push = stack.append
    at = made = 0
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
        made += 1
        if made > MAX_VALUES:
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
            push(_number(data, at + 1, size))
            at += 1 + size
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
        elif code == 0x58 or code == 0x8D:  # BINUNICODE, BINUNICODE8
            width = 4 if code == 0x58 else 8
            (size,) = _U32(data, at) if width == 4 else _U64(data, at)
            at += width
            _check_within(size, at, end)
            push(data[at : at + size].decode("utf-8", "replace"))
            at += size
        elif code == 0x75 or code == 0x64:  # SETITEMS, DICT
            mark = marks.pop()
            target = stack[mark - 1] if code == 0x75 else {}
            _fill(target, stack, mark, end_of=code == 0x75)
            if code == 0x64:
                push(target)
        elif code == 0x65 or code == 0x6C:  # APPENDS, LIST
            mark = marks.pop()
            items = _pop_above(stack, mark)
            if code == 0x6C:
                push(items)
            else:
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
            mark = len(stack) - 2
            if mark < 1:
                raise IndexError
            _fill(stack[mark - 1], stack, mark, end_of=True)
        elif code == 0x61:  # APPEND
            item = stack.pop()
            _as_list(stack[-1]).append(item)
        elif code in (0x85, 0x86, 0x87):  # TUPLE1, TUPLE2, TUPLE3
            mark = len(stack) - (code - 0x84)
            if mark < 0:
                raise IndexError
            push(tuple(_pop_above(stack, mark)))
        elif code == 0x74:  # TUPLE
            push(tuple(_pop_above(stack, marks.pop())))
        elif code == 0x4E:  # NONE
            push(None)
        elif code == 0x88 or code == 0x89:  # NEWTRUE, NEWFALSE
            push(code == 0x88)
        elif code == 0x47:  # BINFLOAT
            push(_F64(data, at)[0])
            at += 8
        elif code == 0x8B:  # LONG4
            (size,) = _I32(data, at)
            push(_number(data, at + 4, size))
            at += 4 + size
        elif code == 0x71:  # BINPUT
            memo.put(data[at], stack[-1])
            at += 1
        elif code == 0x72:  # LONG_BINPUT
            memo.put(_U32(data, at)[0], stack[-1])
            at += 4
        elif code in (0x43, 0x55):  # SHORT_BINBYTES, SHORT_BINSTRING
            size = data[at]
            at += 1
            _check_within(size, at, end)
            push(data[at : at + size])
            at += size
        elif code in (0x42, 0x54, 0x8E):  # BINBYTES, BINSTRING, BINBYTES8
            width = 8 if code == 0x8E else 4
            (size,) = _U64(data, at) if width == 8 else _U32(data, at)
            at += width
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
        elif code == 0x32:  # DUP
            push(stack[-1])
        elif code in _LINES:
            line_end = data.find(b"\n", at, at + _MAX_LINE_BYTES)
            if line_end < 0:
                raise InvalidTrace("a line does not end")
            _push_line_value(code, data[at:line_end], stack, memo)
            at = line_end + 1
        else:
            runs = f"it would run code ({_RUNS.get(code)}), which this reader never does"
            raise InvalidTrace(
                runs if code in _RUNS else f"it has an instruction that plain data does not need (0x{code:02x})"
            )
    raise InvalidTrace(f"it has more than {_MAX_STEPS:,} instructions")


_LINES = frozenset(b"ILFVpg")
"""INT, LONG, FLOAT, UNICODE, PUT, GET: their argument is a line of text."""
_RUNS = {
    0x63: "GLOBAL", 0x93: "STACK_GLOBAL", 0x52: "REDUCE", 0x62: "BUILD", 0x69: "INST", 0x6F: "OBJ", 0x81: "NEWOBJ",
    0x92: "NEWOBJ_EX", 0x50: "PERSID", 0x51: "BINPERSID", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4",
}  # fmt: skip


def _push_line_value(code: int, line: bytes, stack: list[Any], memo: _Memo) -> None:
    try:
        if code == 0x56:  # UNICODE
            stack.append(line.decode("raw-unicode-escape", "replace"))
        elif code == 0x46:  # FLOAT
            stack.append(float(line[:64]))
        elif code == 0x49 and line in (b"00", b"01"):  # INT: protocol 0 has truth values as such
            stack.append(line == b"01")
        else:
            if len(line) > 2 * _MAX_NUMBER_BYTES:
                raise InvalidTrace("it has a number with too many digits")
            number = int(line.rstrip(b"L"))
            if code == 0x70:  # PUT
                memo.put(number, stack[-1])
            elif code == 0x67:  # GET
                stack.append(memo.get(number))
            else:
                stack.append(number)
    except ValueError as error:
        if isinstance(error, InvalidTrace):
            raise
        raise InvalidTrace("it contains an invalid number") from None


def _number(data: bytes, at: int, size: int) -> int:
    if not 0 <= size <= _MAX_NUMBER_BYTES:
        raise InvalidTrace(f"it has an integer of {size} bytes")
    _check_within(size, at, len(data))
    return int.from_bytes(data[at : at + size], "little", signed=True)


def _check_within(size: int, at: int, end: int) -> None:
    if size > end - at:
        raise InvalidTrace("a value is truncated")


def _pop_above(stack: list[Any], mark: int) -> list[Any]:
    if mark > len(stack):
        raise IndexError
    items = stack[mark:]
    del stack[mark:]
    return items


def _as_list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise InvalidTrace("it adds items to something that is not a list")
    return value


def _fill(target: Any, stack: list[Any], mark: int, *, end_of: bool) -> None:
    """Moves the pairs above ``mark`` into a dictionary. Other keys than texts could be made to collide."""
    if type(target) is not dict or (end_of and mark < 1):
        raise InvalidTrace("it sets items of something that is not a dictionary")
    items = _pop_above(stack, mark)
    if len(items) % 2:
        raise InvalidTrace("it sets an item without a value")
    for key in items[::2]:
        if type(key) is not str:
            raise InvalidTrace("it has a dictionary whose keys are not strings")
    target.update(zip(items[::2], items[1::2], strict=True))
