"""Groups the lines of TensorFlow's placer by run: one run places one graph, and writes a line for each node.

Node names repeat in every ``tf.function``, so one line does not identify its graph; the lines of a run together do.
Source: tensorflow/core/common_runtime/placer.cc (``LogDeviceAssignment``), which writes a function's arguments first
and its constants last.
"""

from __future__ import annotations

import re

MAX_NODES = 50_000
"""Nodes kept in all runs together; further ones are only counted."""

Node = tuple[str, str, str]
"""Name, type of op, short device."""

_OWN = frozenset({"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval"})
_NOT_COUNTED = frozenset(
    {"Const", "NoOp", "Placeholder", "_EagerConst", "_HostConst"}
    | {"Enter", "Exit", "Merge", "Switch", "NextIteration", "LoopCond"}
)
"""Constants, and what TensorFlow replaces loops and branches with."""
_INLINED = re.compile(r"^Func/|/_\d+$")
"""Nodes that TensorFlow adds when it inlines functions and lowers loops."""


class PlacerRuns:
    """Takes the placer's lines with the threads that wrote them, and groups them by run."""

    def __init__(self) -> None:
        self._open: dict[int, _Run] = {}
        self._closed: list[tuple[Node, ...]] = []
        self._nodes = 0
        self.left_out = 0

    def node(self, thread: int, name: str, op: str, where: str) -> None:
        """Adds a line."""
        run = self._open.get(thread)
        if run is None or run.ends_before(name, op):
            if run is not None:
                self._close(run)
            run = self._open[thread] = _Run()
        if op in _OWN:
            run.arguments = True
            return
        run.body = True
        if op in _NOT_COUNTED or _INLINED.search(name):
            return
        if self._nodes >= MAX_NODES:
            self.left_out += 1
            return
        self._nodes += 1
        run.nodes[name] = (name, op, where)

    def result(self) -> list[tuple[Node, ...]]:
        """The program's own nodes in each run so far."""
        return [*self._closed, *(tuple(run.nodes.values()) for run in self._open.values() if run.counts)]

    def _close(self, run: _Run) -> None:
        if run.counts:
            self._closed.append(tuple(run.nodes.values()))


class _Run:
    """One run of the placer."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.arguments = False
        self.body = False

    def ends_before(self, name: str, op: str) -> bool:
        """Whether this node is the first of the next run."""
        return (op == "_Arg" and self.body) or name in self.nodes

    @property
    def counts(self) -> bool:
        """Whether it placed a graph. An eager op is wrapped in a function with one node, named after it."""
        if len(self.nodes) == 1 and self.arguments:
            ((name, op, _),) = self.nodes.values()
            return name != op
        return bool(self.nodes)
