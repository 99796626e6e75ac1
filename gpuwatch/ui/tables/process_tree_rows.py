"""Processes as a tree: each below its parent. Pure.

Host processes without a GPU appear only where needed: as the parent of a GPU process, or as the common
ancestor of several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from gpuwatch.core.model.snapshot import Process, Snapshot
from gpuwatch.session.process_history import ancestor_row
from gpuwatch.ui.tables.process_table_rows import Row

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
            _append_branches(
                child, children + ("└─ " if last else "├─ "), children + ("   " if last else "│  "), depth + 1, found
            )
        else:
            _append_branches(child, lead, children, depth, found)
