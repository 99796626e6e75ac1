"""Joins the device where each op ran with the device that the program requested.

Eager ops are reported with both. Nodes of graphs are joined with the placer's log lines by name: each run of the
placer is matched to a graph that the program traced, inlined functions through the op that calls them. If no graph
fits, or graphs that fit differ, the node is counted without a requested device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from gpuwatch.logs.clean import device
from gpuwatch.logs.placement import NOISE, op_name
from gpuwatch.logs.placer_runs import CALLS, PlacerRun
from gpuwatch.model.run import Placement, PlacementCoverage

_PLUMBING = (
    *("Anonymous", "Dataset", "DeleteIterator", "Iterator", "MakeIterator", "MultiDeviceIterator", "Optional"),
    "RemoteCall",  # with it a MultiDeviceIterator fetches from the host
)
"""Ops of input pipelines: Keras requests devices for them, and they belong on the CPU."""
_FIT = 0.9
"""Share of a placer run's nodes that a graph must have to match."""
_DEEPEST = 12
_CLOCK = 5e-6
"""Seconds by which TensorFlow's clock and ours may differ."""
_BRANCH = re.compile(r"^(?:body|cond|then|else|branch\d+)/_\d+/")
"""What TensorFlow puts before the nodes of a lowered loop or branch."""


class Kind(NamedTuple):
    """An op before placement."""

    op: str
    dtype: str | None
    asked: str
    """The device that the program requested; empty for none."""
    scope: str = ""
    """The program's line that requested it."""
    why: str = ""
    """``resource`` if it uses a variable or table, with which it is placed; see Placement."""
    gpu_kernel: bool | None = None
    """Whether this process has a GPU kernel for this op and type."""
    cuda_kernel: bool | None = None
    """Whether TensorFlow has a CUDA kernel. Differs from ``gpu_kernel`` on GPUs simulated as a plug-in."""

    def within(self, call: Kind) -> Kind:
        """This op in a function that ``call`` calls: without a request of its own it has that of the call."""
        return self if self.asked or not call.asked else self._replace(asked=call.asked, scope=call.scope)


_NOBODY = Kind("", None, "")


class Called(msgspec.Struct, frozen=True, kw_only=True):
    """A call after which TensorFlow placed a graph."""

    graph: int
    threads: tuple[int, ...]
    """Numbers under which the log may name the caller's thread."""
    start: float
    """Seconds since the epoch."""
    end: float | None
    """None: from then on."""
    requested: str
    scope: str
    how: Literal["call", "session", "dataset"]

    def covers(self, run: PlacerRun) -> bool:
        """Whether this call may have placed that graph."""
        here = self.how == "dataset" or not run.thread or run.thread in self.threads
        return here and self.lasts(run.at)

    def lasts(self, at: float) -> bool:
        """Whether it was at work at that time."""
        return self.start <= at + _CLOCK and (self.end is None or at <= self.end + _CLOCK)


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
        self.calls: list[Called] = []
        self.eager: dict[tuple[Kind, str], int] = {}
        """Count by op and device where it ran."""

    @property
    def known(self) -> bool:
        """Whether the process reported any op."""
        return bool(self.eager or self.graphs)

    def find(self, graph: TracedGraph, name: str, op: str, call: Kind = _NOBODY, depth: int = 0) -> Kind | None:
        """The node of this name and op, searched also in the functions that the graph calls."""
        kind = graph.nodes.get(name)
        if kind is not None and kind.op == op:
            return kind.within(call)
        at = name.find("/") if depth <= _DEEPEST and graph.calls else -1
        while at > 0:
            for body in self.called(graph, name[:at]):
                rest = _BRANCH.sub("", name[at + 1 :])
                found = self.find(body, rest, op, graph.nodes[name[:at]].within(call), depth + 1)
                if found is not None:
                    return found
            at = name.find("/", at + 1)
        return None

    def called(self, graph: TracedGraph, name: str) -> list[TracedGraph]:
        """The functions that a node calls."""
        numbers = (self.functions.get(function, -1) for function in graph.calls.get(name, ()))
        return [self.graphs[number] for number in numbers if number in self.graphs]


def joined(
    processes: Iterable[Traced], log: Sequence[Placement], runs: Sequence[PlacerRun]
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
    for run, kinds in _matched(processes, runs):
        for (_, op, actual), found in zip(run.nodes, kinds, strict=True):
            nodes += 1
            unclear += found is None
            _add(counts, found if found is not None else Kind(op, None, ""), actual, 1)
    placements = (
        Placement(
            op=kind.op,
            dtype=kind.dtype,
            requested=short(kind.asked),
            scope=kind.scope or None,
            why=kind.why,
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
    if not kind.asked or short(kind.asked) == actual:
        kind = kind._replace(why="")
    if actual.startswith("GPU"):
        kind = kind._replace(gpu_kernel=None, cuda_kernel=None)  # only of interest for ops that ran elsewhere
    counts[kind, actual] = counts.get((kind, actual), 0) + count


Found = list[Kind | None]


class _Candidate(NamedTuple):
    """A graph that a run of the placer may have placed."""

    process: Traced
    graph: TracedGraph
    call: Kind = _NOBODY
    source: Called | None = None


def _matched(processes: Sequence[Traced], runs: Sequence[PlacerRun]) -> Iterator[tuple[PlacerRun, Found]]:
    """The requested op of each node of each run; None if no graph fits, or graphs that fit differ."""
    used: set[int] = set()
    """Datasets whose function was placed."""
    inner: list[_Candidate] = []
    """Functions that placed graphs call without inlining: they are placed when they run, by any thread."""
    everything = [_Candidate(process, graph) for process in processes for graph in process.graphs.values()]
    for run in sorted(runs, key=lambda one: one.at):
        fits: list[tuple[_Candidate, Found]] = []
        for candidates in (_in_time(processes, run), _during(inner, run), _datasets(processes, run), everything):
            fits = [(one, found) for one in candidates if (found := _fit(one, run)) is not None]
            if fits:
                break
        if not fits:
            yield run, [None] * len(run.nodes)
            continue
        best = max(sum(kind is not None for kind in found) for _, found in fits)
        fits = [(one, found) for one, found in fits if sum(kind is not None for kind in found) == best]
        fits = _fresh(fits, used)
        inner += _not_inlined([one for one, _ in fits], run)
        yield run, [_agreed(kinds) for kinds in zip(*(found for _, found in fits), strict=True)]


def _in_time(processes: Sequence[Traced], run: PlacerRun) -> list[_Candidate]:
    """The graph of the call or session that was at work in this thread then."""
    found: list[_Candidate] = []
    for process in processes:
        calls = [call for call in process.calls if call.how != "dataset" and call.covers(run)]
        found += (_of(process, call) for call in calls if call.graph in process.graphs)
    return found


def _during(inner: Sequence[_Candidate], run: PlacerRun) -> list[_Candidate]:
    """Functions whose caller was at work then, in whatever thread."""
    return [one for one in inner if one.source is not None and one.source.lasts(run.at)]


def _datasets(processes: Sequence[Traced], run: PlacerRun) -> list[_Candidate]:
    return [
        _of(process, call)
        for process in processes
        for call in process.calls
        if call.how == "dataset" and call.covers(run) and call.graph in process.graphs
    ]


def _of(process: Traced, call: Called) -> _Candidate:
    return _Candidate(process, process.graphs[call.graph], Kind("", None, call.requested, call.scope), call)


def _fresh(fits: list[tuple[_Candidate, Found]], used: set[int]) -> list[tuple[_Candidate, Found]]:
    """Of datasets that fit, those whose function was not placed yet, if there are any."""
    if any(one.source is None or one.source.how != "dataset" for one, _ in fits):
        return fits
    fresh = [(one, found) for one, found in fits if id(one.source) not in used]
    if len(fresh) == 1:
        used.add(id(fresh[0][0].source))
    return fresh or fits


def _not_inlined(placed: Sequence[_Candidate], run: PlacerRun) -> Iterator[_Candidate]:
    for one in placed:
        for name, op, _ in run.nodes:
            kind = one.process.find(one.graph, name, op, one.call) if op in CALLS else None
            if kind is not None:
                yield from (
                    _Candidate(one.process, body, kind, one.source) for body in one.process.called(one.graph, name)
                )


def _fit(one: _Candidate, run: PlacerRun) -> Found | None:
    allowed = int(len(run.nodes) * (1 - _FIT))
    found: Found = []
    missed = 0
    for name, op, _ in run.nodes:
        kind = one.process.find(one.graph, name, op, one.call)
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
    scopes = {kind.scope for kind in kinds if kind is not None}
    return Kind(first.op, None, first.asked, first.scope if len(scopes) == 1 else "")


def plumbing(op: str) -> bool:
    """Whether this op belongs to an input pipeline."""
    return op.startswith(_PLUMBING) or "Dataset" in op


def short(name: str | None) -> str | None:
    """``GPU:0``; None if no device was named."""
    if not name:
        return None
    found = device(name)
    return found if found.startswith(("GPU", "CPU")) else None
