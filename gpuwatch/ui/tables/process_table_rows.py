"""Rows of the process table: processes, and memory that none of them owns; in order, filtered, as a tree. Pure.

In the tree, host processes without a GPU appear only where needed: as the parent of a GPU process, or as the common
ancestor of several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from gpuwatch.core.formatting.units import memory
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.session.process_history import ancestor_row
from gpuwatch.ui.tables.process_columns import Column

RowKey = tuple[str | None, int, float | None]
NOTABLE_UNEXPLAINED_BYTES = 100 * 2**20
"""Bytes below which unexplained memory is ignored: rounding, contexts and the driver's own use."""


@dataclass(frozen=True, slots=True, eq=False)
class UnexplainedMemory:
    """Memory that no listed process owns, summed over devices: one row below the processes."""

    parts: tuple[tuple[Device, float], ...]
    """Devices with a notable amount, in bytes."""
    reason: str

    @property
    def amount(self) -> float:
        """Bytes on all devices."""
        return sum(amount for _, amount in self.parts)

    @property
    def key(self) -> RowKey:
        """A key no process has: pid -1."""
        return ("", -1, None)


Row = Process | UnexplainedMemory


def largest_memory(rows: Iterable[Row]) -> float:
    """The largest amount in the column of GPU memory."""
    held = (row.amount if isinstance(row, UnexplainedMemory) else row.number("gpu_memory_bytes") for row in rows)
    return max((amount or 0.0 for amount in held), default=0.0)


def unexplained_memory(snapshot: Snapshot, device: str | None = None) -> UnexplainedMemory | None:
    """Notable memory that no listed process owns, on one ``device`` (a UUID) or all."""
    parts = tuple(
        (item, amount)
        for item in snapshot.devices
        if device in (None, item.uuid)
        and (amount := item.number("memory.unexplained_bytes")) is not None
        and amount >= NOTABLE_UNEXPLAINED_BYTES
    )
    if not parts:
        return None
    where = ", ".join(f"{memory(amount)} on GPU {device.index}" for device, amount in parts) if len(parts) > 1 else ""
    return UnexplainedMemory(parts, f"not owned by any visible process{f': {where}' if where else ''}")


def table_rows(snapshot: Snapshot, device: str | None = None) -> list[Row]:
    """Processes of one ``device`` (a UUID); or all, with programs on no GPU. And notable memory that nobody owns."""
    rows: list[Row] = [row for row in snapshot.processes if device in (None, row.device_uuid)]
    if device is None:
        rows += snapshot.bystanders
    nobody = unexplained_memory(snapshot, device)
    return [*rows, nobody] if nobody is not None else rows


def sorted_rows(rows: Iterable[Row], column: Column, *, reverse: bool) -> list[Row]:
    """Sorted rows; ties by GPU and pid, unknown values last, then rows that are not processes."""
    base = sorted(rows, key=_tie_breaker)
    values = [(None if isinstance(row, UnexplainedMemory) else column.value_of(row), row) for row in base]
    known = [(value, row) for value, row in values if value is not None]
    if any(isinstance(value, str) for value, _ in known):
        known.sort(key=lambda pair: str(pair[0]).lower(), reverse=reverse)
    else:
        known.sort(key=lambda pair: float(pair[0] or 0), reverse=reverse)
    return [row for _, row in known] + [row for value, row in values if value is None]


def _tie_breaker(row: Row) -> tuple[int, int]:
    if isinstance(row, UnexplainedMemory):
        return (2**31, 2**31)
    return (10**6 if row.device_index is None else row.device_index, row.pid)


def filtered_rows(rows: Sequence[Row], test: Callable[[Process, float], bool] | None, at: float) -> list[Row]:
    """Rows that match a filter at a moment (seconds since the epoch); any filter hides unexplained memory, which is
    not a process.
    """
    if test is None:
        return list(rows)
    return [row for row in rows if isinstance(row, Process) and test(row, at)]


_MAX_DEPTH = 8
"""Maximum depth drawn; deeper levels are not indented further."""


class Branch(NamedTuple):
    """A row with the tree lines drawn before its command."""

    row: Row
    lead: str
    """``│  ├─ ``."""
    requested: bool
    """Whether it is one of the requested rows; the others connect them."""


class _Node:
    __slots__ = ("children", "requested", "rows")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.requested = False
        self.children: list[_Node] = []


def tree_branches(rows: Sequence[Row], snapshot: Snapshot) -> list[Branch]:
    """``rows`` as a tree. Siblings and roots keep the order of their first row."""
    pids = {row.pid for row in rows if isinstance(row, Process)}
    shown = pids | _connecting_pids(pids, snapshot.parents)
    ancestors = {ancestor.pid: ancestor for ancestor in snapshot.ancestors}
    hidden = {row.pid: row for row in snapshot.processes}
    nodes: dict[int, _Node] = {}
    top = _Node()

    def node_of(pid: int) -> _Node:
        node = nodes.get(pid)
        if node is None:
            node = nodes[pid] = _Node()
            if pid not in pids:
                # Not requested: not on a GPU, or filtered out.
                node.rows.append(ancestor_row(ancestors[pid]) if pid in ancestors else hidden[pid])
            known = shown & (pids | ancestors.keys() | hidden.keys())
            parent = next((parent for parent in _ancestor_pids(pid, snapshot.parents) if parent in known), None)
            (node_of(parent) if parent is not None else top).children.append(node)
        return node

    for row in rows:
        if isinstance(row, Process):
            node = node_of(row.pid)
        else:
            node = _Node()
            top.children.append(node)
        node.rows.append(row)
        node.requested = True
    found: list[Branch] = []
    for node in top.children:
        _append_branches(node, "", "", 0, found)
    return found


def _ancestor_pids(pid: int, parents: dict[int, int]) -> Iterator[int]:
    """Every ancestor, the nearest first; each once, since pids are used again."""
    seen = {pid}
    while (parent := parents.get(pid)) is not None and parent not in seen:
        yield parent
        seen.add(parent)
        pid = parent


def _connecting_pids(pids: set[int], parents: dict[int, int]) -> set[int]:
    """Parents of ``pids``, and every ancestor where branches meet."""
    children: dict[int, set[int]] = {}
    for pid in pids:
        for child, parent in pairwise((pid, *_ancestor_pids(pid, parents))):
            children.setdefault(parent, set()).add(child)
    meeting = {pid for pid, children in children.items() if len(children) > 1}
    return (meeting | {parents[pid] for pid in pids if pid in parents}) - pids


def _append_branches(node: _Node, lead: str, children: str, depth: int, found: list[Branch]) -> None:
    for number, row in enumerate(node.rows):
        # A process on several devices has a row for each; its children follow the last one.
        again = children + ("│  " if node.children else "   ") if lead else ""
        found.append(Branch(row, lead if number == 0 else again, node.requested))
    for number, child in enumerate(node.children):
        last = number == len(node.children) - 1
        if depth < _MAX_DEPTH:
            branch, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
            _append_branches(child, children + branch, children + below, depth + 1, found)
        else:
            _append_branches(child, lead, children, depth, found)
