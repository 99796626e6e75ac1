"""The call into the driver's library that is under way, as the process that supervises this one sees it.

A call that crashes or hangs takes the whole process with it. So its name is written to a page of memory that the
parent shares, and the parent tells the next process which calls to leave out for a while.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Mapping
from typing import NamedTuple

_PAGE = struct.Struct("=d56s")
_NO_CALL = _PAGE.pack(0.0, b"")


class Call(NamedTuple):
    """A call that has not returned."""

    name: str
    since: float
    """On the monotonic clock, which all processes share."""


class LeftOut(NamedTuple):
    """A call that is not made, because it took an earlier process down."""

    why: str
    until: float
    """On the monotonic clock."""


class CallPage:
    """The shared page, in the process that creates it."""

    def __init__(self, descriptor: int | None = None) -> None:
        """``descriptor``: of :func:`new_page`; a new one by default. OSError if there is no memory for it."""
        self.descriptor = new_page() if descriptor is None else descriptor
        self._page = mmap.mmap(self.descriptor, mmap.PAGESIZE)

    @property
    def call(self) -> Call | None:
        """The call that is under way, or was when the process ended.

        Of a process that runs it may be half of one call and half of the next: only one that is seen twice is sure.
        """
        since, name = _PAGE.unpack_from(self._page)
        text = name.rstrip(b"\0").decode("ascii", "replace")
        return Call(text, since) if text and since else None

    def close(self) -> None:
        self._page.close()
        os.close(self.descriptor)


def new_page() -> int:
    """The descriptor of an empty page, not inherited by programs unless it is passed on. OSError."""
    try:
        descriptor = os.memfd_create("gpuwatch-call", os.MFD_CLOEXEC)
    except (OSError, AttributeError):  # Linux before 3.17, or a Python built for a glibc before 2.27
        import tempfile

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, mmap.PAGESIZE)
    return descriptor


_shared_page: mmap.mmap | None = None
_calls_left_out: dict[str, LeftOut] = {}


def start_tracking(descriptor: int | None, left_out: Mapping[str, LeftOut]) -> None:
    """Writes the calls of this process to that page from now on, and makes none of ``left_out`` before its time."""
    global _shared_page
    if descriptor is not None:
        try:
            _shared_page = mmap.mmap(descriptor, mmap.PAGESIZE)
        except (OSError, ValueError):
            _shared_page = None  # a crash is not named then
    _calls_left_out.update(left_out)


def begin(name: bytes) -> None:
    """Notes on the shared page that a call begins."""
    if _shared_page is not None:
        _PAGE.pack_into(_shared_page, 0, time.monotonic(), name)


def end() -> None:
    """Notes that the call has returned."""
    if _shared_page is not None:
        _shared_page[: _PAGE.size] = _NO_CALL


def all_left_out() -> list[str]:
    """The calls that are not made now, each with the reason."""
    return [f"{name}: {why}" for name in list(_calls_left_out) if (why := why_left_out(name))]


def why_left_out(name: str) -> str:
    """Why a call is not made now; empty if it is made."""
    if not _calls_left_out or name not in _calls_left_out:
        return ""
    if time.monotonic() >= _calls_left_out[name].until:
        del _calls_left_out[name]
        return ""
    return _calls_left_out[name].why
