"""Unchanged means the same object: what did not change from one sample to the next is not made anew.

Who receives samples then sees by identity what need not be compared, encoded or drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Generic, TypeVar

from msgspec.structs import replace

from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.machine.history.sample_frames import CHANGING_FIELDS

_R = TypeVar("_R", Device, Process)
_T = TypeVar("_T")


def same_or_new(before: tuple[_T, ...], now: Sequence[_T]) -> tuple[_T, ...]:
    """``now``; the very tuple of ``before`` where it has the same objects."""
    if len(before) == len(now) and all(map(is_, before, now)):
        return before
    return tuple(now)


class MappedRows(Generic[_T]):
    """Rows made of rows, of each object once: unchanged rows, and tuples of them, stay the same objects."""

    def __init__(self, make_row: Callable[[_T], _T]) -> None:
        self._make_row = make_row
        self._previous: tuple[tuple[_T, ...], tuple[_T, ...]] = ((), ())

    def made_of(self, rows: tuple[_T, ...]) -> tuple[_T, ...]:
        """The row made of each of ``rows``, in their order; to be called for one sample after the other."""
        if rows is not self._previous[0]:
            known = dict(zip(map(id, self._previous[0]), self._previous[1], strict=True))
            self._previous = (rows, tuple([known.get(id(row)) or self._make_row(row) for row in rows]))
        return self._previous[1]


_LASTING_FIELDS = tuple(name for name in Snapshot.__struct_fields__ if name not in CHANGING_FIELDS)


def with_reused_objects(now: Snapshot, before: Snapshot) -> Snapshot:
    """The snapshot with the objects of the previous one where they are equal, as feeds give them."""
    if now.devices is before.devices and now.processes is before.processes:
        return now
    unchanged = {name: getattr(before, name) for name in _LASTING_FIELDS if getattr(now, name) == getattr(before, name)}
    return replace(
        now,
        devices=_reuse_equal(now.devices, before.devices),
        processes=_reuse_equal(now.processes, before.processes),
        bystanders=_reuse_equal(now.bystanders, before.bystanders),
        **unchanged,
    )


def _reuse_equal(now: tuple[_R, ...], before: tuple[_R, ...]) -> tuple[_R, ...]:
    """``now`` with the objects of ``before`` where they are equal; ``before`` itself if all are."""
    if len(now) != len(before):
        return now
    rows = [
        old if row is old or (row == old and list(row.readings) == list(old.readings)) else row
        for row, old in zip(now, before, strict=True)
    ]
    return same_or_new(before, rows)
