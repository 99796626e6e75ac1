"""Processes as a tree: each below the one that started it. Pure.

Processes of the host that are on no GPU stand in it only where they are needed: as the parent of one
that is, or where the branches of several meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpuwatch.model.reading import Missing
from gpuwatch.model.snapshot import PROCESS_READINGS, Ancestor, Process, Snapshot
from gpuwatch.ui.rows import Row

_ON_NO_GPU = Missing("not_supported", detail="the process is on no GPU: it only started some that are")
_NOT_READ = Missing("no_sample", detail="asked of processes on GPUs only")
_DEEPEST = 8
"""Levels that are drawn; deeper ones stand below each other."""


class Branch(NamedTuple):
    """A row with what is drawn before its command."""

    row: Row
    lead: str
    """``│  ├─ ``."""
    asked: bool
    """Whether it is one of the rows that were asked for; the others join those."""


def host_row(one: Ancestor, at: float) -> Process:
    """A process of the host as a row; ``at`` in seconds since the epoch."""
    missing = dict.fromkeys(PROCESS_READINGS, _NOT_READ) | dict.fromkeys(
        ("gpu_memory_bytes", "sm_percent", "memory_percent", "encoder_percent", "decoder_percent"), _ON_NO_GPU
    )
    del missing["run_seconds"]
    return Process(
        pid=one.pid,
        create_time=one.create_time,
        user=one.user,
        command=one.command,
        name=one.name,
        type="H",
        device_uuid=None,
        note="on no GPU",
        readings={"run_seconds": max(at - one.create_time, 0.0)},
        missing=missing,
    )


class _Node:
    __slots__ = ("asked", "below", "rows")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.asked = False
        self.below: list[_Node] = []


def branches(rows: Sequence[Row], snapshot: Snapshot) -> list[Branch]:
    """``rows`` as a tree. Siblings, and trees, keep the order of their first row."""
    pids = {row.pid for row in rows if isinstance(row, Process)}
    shown = pids | _joining(pids, snapshot.parents)
    ancestors = {one.pid: one for one in snapshot.ancestors}
    hidden = {row.pid: row for row in snapshot.processes}
    at = snapshot.taken_at.timestamp()
    nodes: dict[int, _Node] = {}
    top = _Node()

    def node_of(pid: int) -> _Node:
        node = nodes.get(pid)
        if node is None:
            node = nodes[pid] = _Node()
            if pid not in pids:
                # On no GPU, or on one and not asked for.
                node.rows.append(host_row(ancestors[pid], at) if pid in ancestors else hidden[pid])
            above = _nearest(pid, snapshot.parents, shown & (pids | ancestors.keys() | hidden.keys()))
            (node_of(above) if above is not None else top).below.append(node)
        return node

    for row in rows:
        if isinstance(row, Process):
            node = node_of(row.pid)
        else:
            node = _Node()
            top.below.append(node)
        node.rows.append(row)
        node.asked = True
    found: list[Branch] = []
    for node in top.below:
        _draw(node, "", "", 0, found)
    return found


def _nearest(pid: int, parents: dict[int, int], wanted: set[int]) -> int | None:
    """The nearest ancestor that is ``wanted``."""
    seen = {pid}
    at = parents.get(pid)
    while at is not None and at not in seen:
        if at in wanted:
            return at
        seen.add(at)
        at = parents.get(at)
    return None


def _joining(pids: set[int], parents: dict[int, int]) -> set[int]:
    """Parents of ``pids``, and every ancestor at which branches meet."""
    children: dict[int, set[int]] = {}
    for pid in pids:
        seen, at = {pid}, pid
        while (above := parents.get(at)) is not None and above not in seen:
            children.setdefault(above, set()).add(at)
            seen.add(above)
            at = above
    meeting = {pid for pid, below in children.items() if len(below) > 1}
    return (meeting | {parents[pid] for pid in pids if pid in parents}) - pids


def _draw(node: _Node, lead: str, below: str, depth: int, found: list[Branch]) -> None:
    for number, row in enumerate(node.rows):
        # A process on several devices has a row for each; its children follow the last.
        again = below + ("│  " if node.below else "   ") if lead else ""
        found.append(Branch(row, lead if number == 0 else again, node.asked))
    for number, child in enumerate(node.below):
        last = number == len(node.below) - 1
        if depth < _DEEPEST:
            _draw(child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "), depth + 1, found)
        else:
            _draw(child, lead, below, depth, found)
