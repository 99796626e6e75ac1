"""Groups the lines of TensorFlow's placer by run: one run places one graph, and writes a line for each node.

Node names repeat in every ``tf.function``, so one line does not identify its graph; the lines of a run together do.
Source: tensorflow/core/common_runtime/placer.cc (``LogDeviceAssignment``), which writes a function's arguments first
and its constants last.
"""

from __future__ import annotations

import datetime
import re
from typing import NamedTuple

_APART = 0.001
"""Seconds between two lines of different runs: a run writes its lines at once."""
MAX_NODES = 50_000
"""Nodes kept in all runs together; further ones are only counted."""

Node = tuple[str, str, str]
"""Name, type of op, short device."""

_SECONDS = re.compile(r"I\d{4} 00:00:(\d{9,11}\.\d+)")
_LOCAL = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+): I ")


class PlacerRun(NamedTuple):
    """The program's own nodes of a graph that was placed, constants excepted."""

    nodes: tuple[Node, ...]
    thread: int = 0
    """Who placed it; 0 if the log does not say (before 2.19)."""
    at: float = 0.0
    """When, in seconds since the epoch; 0 if the log does not say."""


CALLS = frozenset(
    {"PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf"}
    | {"Case", "StatelessCase"}
)
"""Ops that call functions, whose contents are placed separately."""
_ADDED = frozenset({"Const", "NoOp"})
_OWN = frozenset({"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval"})
_NOT_COUNTED = frozenset(
    {"Const", "Identity", "NoOp", "Placeholder", "_EagerConst", "_HostConst"}
    | {"Enter", "Exit", "Merge", "Switch", "NextIteration", "LoopCond"}
)
"""Constants, copies of names, and what TensorFlow replaces loops and branches with."""
_INLINED = re.compile(r"^Func/|/_\d+$")
"""Nodes that TensorFlow adds when it inlines functions and lowers loops."""


class PlacerRuns:
    """Takes the placer's lines with the threads that wrote them, and groups them by run."""

    def __init__(self) -> None:
        self._open: dict[int, _Run] = {}
        self._closed: list[PlacerRun] = []
        self._nodes = 0
        self.left_out = 0

    def node(self, thread: int, name: str, op: str, where: str, line: str = "") -> None:
        """Adds a line. ``line``: all of it, for its time."""
        run, at = self._open.get(thread), _when(line)
        if run is None or at - run.last > _APART or run.ends_before(name, op):
            if run is not None:
                self._close(run)
            run = self._open[thread] = _Run(thread, at)
        run.last = at
        if op in _OWN:
            run.arguments = True
            return
        run.body += op not in _ADDED
        if op in _NOT_COUNTED or _INLINED.search(name):
            return
        if self._nodes >= MAX_NODES:
            self.left_out += 1
            return
        self._nodes += 1
        run.nodes[name] = (name, op, where)

    def result(self) -> list[PlacerRun]:
        """The runs so far."""
        return [*self._closed, *(run.closed() for run in self._open.values() if run.counts)]

    def _close(self, run: _Run) -> None:
        if run.counts:
            self._closed.append(run.closed())


class _Run:
    """One run of the placer."""

    def __init__(self, thread: int, at: float) -> None:
        self.thread, self.at, self.last = thread, at, at
        self.nodes: dict[str, Node] = {}
        self.arguments = False
        self.body = 0

    def ends_before(self, name: str, op: str) -> bool:
        """Whether this node is the first of the next run."""
        return (op in ("_Arg", "_DeviceArg") and self.body > 0) or name in self.nodes

    def closed(self) -> PlacerRun:
        """All of it."""
        return PlacerRun(tuple(self.nodes.values()), self.thread, self.at)

    @property
    def counts(self) -> bool:
        """Whether it placed a graph. An eager op is wrapped in a function with one node, named after it."""
        if len(self.nodes) == self.body == 1 and self.arguments:
            ((name, op, _),) = self.nodes.values()
            return name != op or op in CALLS
        return bool(self.nodes)


def _when(line: str) -> float:
    """The time of a log line, in seconds since the epoch; 0 if it has none. Before 2.17 it is local time."""
    if match := _SECONDS.search(line):
        return float(match[1])
    if match := _LOCAL.search(line):
        return datetime.datetime.fromisoformat(match[1]).timestamp()
    return 0.0
