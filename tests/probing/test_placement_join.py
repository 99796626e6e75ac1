"""Where ops ran, joined with what the program asked: by node or not at all, never by the type of the op."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.logs.placer_runs import Node, PlacerRun
from gpuwatch.model.run import Placement, PlacementCoverage
from gpuwatch.probing.placement_join import Called, Kind, Traced, TracedGraph, joined

GPU, CPU = "/device:GPU:0", "/device:CPU:0"


def traced(*graphs: dict[str, Kind], **functions: int) -> Traced:
    found = Traced()
    found.functions.update(functions)
    for number, nodes in enumerate(graphs):
        found.graphs[number] = TracedGraph()
        found.graphs[number].nodes.update(nodes)
    return found


def matmul(asked: str = "", dtype: str = "float32") -> Kind:
    return Kind("MatMul", dtype, asked)


def placed(*nodes: Node, at: float = 0.0, thread: int = 0) -> PlacerRun:
    return PlacerRun(nodes, thread, at)


def call(graph: int, start: float, end: float | None, asked: str = "", thread: int = 1, how: str = "call") -> Called:
    scope = "train.py:9" if asked else ""
    data = {"graph": graph, "threads": [thread], "start": start, "end": end, "requested": asked, "scope": scope}
    return msgspec.convert({**data, "how": how}, Called)


def rows(placements: tuple[Placement, ...]) -> set[tuple[str, str | None, str | None, str, int]]:
    return {(p.op, p.dtype, p.requested, p.actual, p.count) for p in placements}


def test_eager_ops_are_joined_with_nothing() -> None:
    program = Traced()
    program.eager = {
        (Kind("MatMul", "float32", f"/job:localhost/replica:0/task:0{GPU}"), "GPU:0"): 2,
        (Kind("ReadVariableOp", "float32", ""), "CPU:0"): 3,
        (Kind("StringJoin", "string", GPU), "CPU:0"): 1,
        (Kind("OptionalHasValue", "bool", GPU), "CPU:0"): 9,
    }
    # The log has the same executions, and two of another thread.
    log = [
        Placement(op="MatMul", actual="GPU:0", count=4),
        Placement(op="ReadVariableOp", actual="CPU:0", count=3),
        Placement(op="StringJoin", actual="CPU:0", count=1),
        Placement(op="OptionalHasValue", actual="CPU:0", count=9),
    ]
    placements, coverage = joined([program], log, [])
    assert coverage is None
    assert rows(placements) == {
        ("MatMul", "float32", "GPU:0", "GPU:0", 2),
        ("MatMul", None, None, "GPU:0", 2),
        ("ReadVariableOp", "float32", None, "CPU:0", 3),
        ("StringJoin", "string", "GPU:0", "CPU:0", 1),
    }


def test_a_node_is_told_with_its_own_request_not_with_that_of_its_type() -> None:
    program = traced({"on_gpu": matmul(GPU), "on_cpu": matmul(CPU), "left": matmul()})
    run = placed(
        ("on_gpu", "MatMul", "GPU:0"),
        ("on_cpu", "MatMul", "CPU:0"),
        ("left", "MatMul", "CPU:0"),
    )
    placements, coverage = joined([program], [], [run])
    assert coverage == PlacementCoverage(nodes=3, unclear=0)
    assert rows(placements) == {
        ("MatMul", "float32", "GPU:0", "GPU:0", 1),
        ("MatMul", "float32", "CPU:0", "CPU:0", 1),
        ("MatMul", "float32", None, "CPU:0", 1),
    }


def test_inlined_functions_are_found_through_the_op_that_calls_them() -> None:
    caller = Kind("PartitionedCall", "float32", "")
    program = traced(
        {"PartitionedCall": caller, "while": Kind("While", "int32", "")},
        {"MatMul": matmul(GPU)},
        {"while/PartitionedCall": caller, "while/MatMul": matmul(CPU)},
        __inference_inner_3=1,
        while_body_7=2,
    )
    program.graphs[0].calls = {"PartitionedCall": ["__inference_inner_3"], "while": ["while_cond_5", "while_body_7"]}
    program.graphs[2].calls = {"while/PartitionedCall": ["__inference_inner_3"]}
    run = placed(
        ("PartitionedCall/MatMul", "MatMul", "GPU:0"),
        ("while/body/_1/while/MatMul", "MatMul", "CPU:0"),
        ("while/body/_1/while/PartitionedCall/MatMul", "MatMul", "GPU:0"),
    )
    placements, coverage = joined([program], [], [run])
    assert coverage == PlacementCoverage(nodes=3, unclear=0)
    assert rows(placements) == {
        ("MatMul", "float32", "GPU:0", "GPU:0", 2),
        ("MatMul", "float32", "CPU:0", "CPU:0", 1),
    }


def test_graphs_that_fit_and_differ_make_no_claim() -> None:
    one, other = {"MatMul": matmul(GPU), "add": matmul(GPU)}, {"MatMul": matmul(CPU), "add": matmul(GPU, "int32")}
    run = placed(("MatMul", "MatMul", "CPU:0"), ("add", "MatMul", "CPU:0"))
    placements, coverage = joined([traced(one, other)], [], [run])
    assert coverage == PlacementCoverage(nodes=2, unclear=1)
    assert rows(placements) == {("MatMul", None, None, "CPU:0", 1), ("MatMul", None, "GPU:0", "CPU:0", 1)}
    # Two processes with a program of the same names are as ambiguous as two graphs of one.
    assert joined([traced(one), traced(other)], [], [run]) == (placements, coverage)


def test_a_run_of_the_placer_that_nobody_traced_makes_no_claim() -> None:
    run = placed(("a", "MatMul", "CPU:0"), ("b", "MatMul", "GPU:0"))
    placements, coverage = joined([traced({"a": matmul(GPU)})], [], [run])
    assert coverage == PlacementCoverage(nodes=2, unclear=2)
    assert all(entry.requested is None for entry in placements)


def text(asked: str = "") -> Kind:
    return Kind("StringJoin", "string", asked)


JOIN: Node = ("StringJoin", "StringJoin", "CPU:0")
SUM: Node = ("add", "AddV2", "GPU:0")


def test_a_function_has_the_request_of_its_call_by_thread_and_time() -> None:
    nodes = {"StringJoin": text(), "add": Kind("AddV2", "float32", "")}
    program = traced(nodes, nodes)
    program.calls = [call(0, 1.0, 2.0, GPU), call(1, 2.1, 3.0), call(0, 1.0, 3.0, "/device:GPU:1", thread=2)]
    runs = [
        placed(JOIN, SUM, at=1.5, thread=1),
        placed(JOIN, SUM, at=2.5, thread=1),
        placed(JOIN, SUM, at=2.5, thread=2),
    ]
    placements, coverage = joined([program], [], runs)
    assert coverage == PlacementCoverage(nodes=6, unclear=0)
    found = {(p.op, p.requested, p.scope, p.count) for p in placements if p.op == "StringJoin"}
    assert found == {
        ("StringJoin", "GPU:0", "train.py:9", 1),
        ("StringJoin", None, None, 1),
        ("StringJoin", "GPU:1", "train.py:9", 1),
    }
    # A log without threads: what both calls agree on is known, the rest is not.
    _, coverage = joined([program], [], [placed(JOIN, SUM, at=1.5)])
    assert coverage == PlacementCoverage(nodes=2, unclear=2)


def test_a_function_that_is_not_inlined_is_placed_later_with_the_request_of_its_call() -> None:
    program = traced(
        {"PartitionedCall": Kind("PartitionedCall", "string", GPU)}, {"StringJoin": text()}, __inference_g_1=1
    )
    program.graphs[0].calls = {"PartitionedCall": ["__inference_g_1"]}
    program.calls = [call(0, 1.0, 2.0)]
    runs = [placed(("PartitionedCall", "PartitionedCall", "GPU:0"), at=1.5, thread=1), placed(JOIN, at=1.6, thread=5)]
    placements, coverage = joined([program], [], runs)
    assert coverage == PlacementCoverage(nodes=2, unclear=0)
    assert ("StringJoin", "string", "GPU:0", "CPU:0", 1) in rows(placements)


def test_datasets_that_fit_alike_are_taken_in_the_order_in_which_they_are_placed() -> None:
    program = traced({"StringJoin": text(GPU)}, {"StringJoin": text()})
    program.calls = [call(0, 1.0, None, how="dataset"), call(1, 3.0, None, how="dataset")]
    placements, coverage = joined([program], [], [placed(JOIN, at=2.0, thread=8), placed(JOIN, at=4.0, thread=9)])
    assert coverage == PlacementCoverage(nodes=2, unclear=0)
    assert {("StringJoin", "string", "GPU:0", "CPU:0", 1), ("StringJoin", "string", None, "CPU:0", 1)} == rows(
        placements
    )


_NAMES = st.sampled_from(["MatMul", "add", "mul", "a/b", "a/b/c"])
_GRAPHS = st.lists(
    st.dictionaries(
        _NAMES, st.tuples(st.sampled_from(["MatMul", "AddV2"]), st.sampled_from(["", GPU, CPU])), min_size=1
    ),
    min_size=1,
    max_size=5,
)


@given(_GRAPHS, st.data())
def test_no_claim_is_false_whatever_the_names(graphs: list[dict[str, tuple[str, str]]], data: st.DataObject) -> None:
    """Each run places one of the graphs that were traced; which one, only the test knows."""
    program = traced(*({name: Kind(op, "float32", asked) for name, (op, asked) in g.items()} for g in graphs))
    drawn = data.draw(st.lists(st.sampled_from(graphs), min_size=1, max_size=4))
    runs = [placed(*((name, op, "CPU:0") for name, (op, _) in graph.items())) for graph in drawn]
    placements, coverage = joined([program], [], runs)
    asked = [want for graph in drawn for _, want in graph.values()]
    assert sum(entry.count for entry in placements) == len(asked)
    for device, short in ((GPU, "GPU:0"), (CPU, "CPU:0")):
        assert sum(entry.count for entry in placements if entry.requested == short) <= asked.count(device)
    assert coverage is not None
    assert coverage.nodes == len(asked)
    if all(graph == graphs[0] for graph in graphs):
        assert coverage.unclear == 0
