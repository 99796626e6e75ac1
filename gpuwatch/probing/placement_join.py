"""Joins the device where each op ran with the device that the program requested.

Eager ops are reported with both. Nodes of graphs are joined with the placer's log lines by name: each run of the
placer is matched to a graph that the program traced, inlined functions through the op that calls them. If no graph
fits, or graphs that fit differ, the node is counted without a requested device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpuwatch.logs.clean import device
from gpuwatch.logs.placement import NOISE, op_name
from gpuwatch.logs.placer_runs import Node
from gpuwatch.model.run import Placement, PlacementCoverage

_PLUMBING = (
    *("Anonymous", "Dataset", "DeleteIterator", "Iterator", "MakeIterator", "MultiDeviceIterator", "Optional"),
    "RemoteCall",  # with it a MultiDeviceIterator fetches from the host
)
"""Ops of input pipelines: Keras requests devices for them, and they belong on the CPU."""
_FIT = 0.9
"""Share of a placer run's nodes that a graph must have to match."""
_DEEPEST = 12
_BRANCH = re.compile(r"^(?:body|cond|then|else)/_\d+/")
"""What TensorFlow puts before the nodes of a lowered loop or branch."""


class Kind(NamedTuple):
    """An op before placement."""

    op: str
    dtype: str | None
    asked: str
    """The device that the program requested; empty for none."""
    gpu_kernel: bool | None = None
    """Whether this process has a GPU kernel for this op and type."""
    cuda_kernel: bool | None = None
    """Whether TensorFlow has a CUDA kernel. Differs from ``gpu_kernel`` on GPUs simulated as a plug-in."""


class TracedGraph:
    """A graph that the program built: its nodes, and the functions that they call."""

    def __init__(self) -> None:
        self.nodes: dict[str, Kind] = {}
        self.calls: dict[str, list[str]] = {}


class Traced:
    """The graphs and eager ops of one process."""

    def __init__(self) -> None:
        self.graphs: dict[int, TracedGraph] = {}
        self.functions: dict[str, int] = {}
        self.eager: dict[tuple[Kind, str], int] = {}
        """Count by op and device where it ran."""

    def find(self, graph: TracedGraph, name: str, depth: int = 0) -> Kind | None:
        """The node of this name, searched also in the functions that the graph calls."""
        kind = graph.nodes.get(name)
        if kind is not None or depth > _DEEPEST or not graph.calls:
            return kind
        at = name.find("/")
        while at > 0:
            for function in graph.calls.get(name[:at], ()):
                body = self.graphs.get(self.functions.get(function, -1))
                if body is None:
                    continue
                found = self.find(body, _BRANCH.sub("", name[at + 1 :]), depth + 1)
                if found is not None:
                    return found
            at = name.find("/", at + 1)
        return None


def joined(
    processes: Iterable[Traced], log: Sequence[Placement], runs: Sequence[tuple[Node, ...]]
) -> tuple[tuple[Placement, ...], PlacementCoverage | None]:
    """All placements, and how many graph nodes could be joined (None without graph nodes).

    ``log``: placements of eager ops from the log; ``runs``: the placer's runs.
    """
    processes = list(processes)
    counts: dict[tuple[Kind, str], int] = {}
    for process in processes:
        for (kind, actual), count in process.eager.items():
            _add(counts, kind, actual, count)
    seen: dict[tuple[str, str], int] = {}
    for (kind, actual), count in counts.items():
        place = (op_name(kind.op), actual)
        seen[place] = seen.get(place, 0) + count
    for entry in log:
        # From threads that the callbacks do not reach.
        more = entry.count - seen.get((entry.op, entry.actual), 0)
        if more > 0:
            _add(counts, Kind(entry.op, None, ""), entry.actual, more)
    nodes = unclear = 0
    for run in runs:
        for (_, op, actual), found in zip(run, _matched(processes, run), strict=True):
            nodes += 1
            unclear += found is None
            _add(counts, found if found is not None else Kind(op, None, ""), actual, 1)
    placements = (
        Placement(
            op=kind.op,
            dtype=kind.dtype,
            requested=short(kind.asked),
            actual=actual,
            count=count,
            gpu_kernel=kind.gpu_kernel,
            cuda_kernel=kind.cuda_kernel,
        )
        for (kind, actual), count in counts.items()
    )
    ordered = sorted(placements, key=lambda entry: (-entry.count, entry.op, entry.dtype or "", entry.actual))
    return tuple(ordered), PlacementCoverage(nodes=nodes, unclear=unclear) if nodes else None


def _add(counts: dict[tuple[Kind, str], int], kind: Kind, actual: str, count: int) -> None:
    if kind.op in NOISE or plumbing(kind.op):
        return
    if actual.startswith("GPU"):
        kind = kind._replace(gpu_kernel=None, cuda_kernel=None)  # only of interest for ops that ran elsewhere
    counts[kind, actual] = counts.get((kind, actual), 0) + count


def _matched(processes: Sequence[Traced], run: Sequence[Node]) -> list[Kind | None]:
    """The requested op of each node; None if no graph fits, or graphs that fit differ."""
    fits = [found for process in processes for graph in process.graphs.values() if (found := _fit(process, graph, run))]
    if not fits:
        return [None] * len(run)
    best = max(sum(kind is not None for kind in found) for found in fits)
    fits = [found for found in fits if sum(kind is not None for kind in found) == best]
    return [_agreed(kinds) for kinds in zip(*fits, strict=True)]


def _fit(process: Traced, graph: TracedGraph, run: Sequence[Node]) -> list[Kind | None] | None:
    allowed = int(len(run) * (1 - _FIT))
    found: list[Kind | None] = []
    missed = 0
    for name, op, _ in run:
        kind = process.find(graph, name)
        if kind is not None and kind.op != op:
            kind = None
        missed += kind is None
        if missed > allowed:
            return None
        found.append(kind)
    return found


def _agreed(kinds: Sequence[Kind | None]) -> Kind | None:
    first = kinds[0]
    if first is None or any(kind is None or kind.asked != first.asked for kind in kinds):
        return None
    if all(kind == first for kind in kinds):
        return first
    return Kind(first.op, None, first.asked)


def plumbing(op: str) -> bool:
    """Whether this op belongs to an input pipeline."""
    return op.startswith(_PLUMBING) or "Dataset" in op


def short(name: str | None) -> str | None:
    """``GPU:0``; None if no device was named."""
    if not name:
        return None
    found = device(name)
    return found if found.startswith(("GPU", "CPU")) else None
