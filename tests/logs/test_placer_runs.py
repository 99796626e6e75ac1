"""The placer's lines, run by run, and the copies that TensorFlow's device policy logs."""

from __future__ import annotations

from gpuwatch.logs import placer_runs
from gpuwatch.logs.log_parser import LogParser

GPU, CPU = "/job:localhost/replica:0/task:0/device:GPU:0", "/job:localhost/replica:0/task:0/device:CPU:0"


def line(text: str, thread: int = 7, source: str = "placer.cc:162") -> str:
    return f"I0000 00:00:1795320255.206864   {thread:5} {source}] {text}"


def parsed(*lines: str) -> LogParser:
    parser = LogParser()
    parser.keep_placer_runs()
    for text in lines:
        parser.feed(text)
    return parser


def runs(*lines: str) -> list[tuple[tuple[str, str, str], ...]]:
    found = parsed(*lines).placer_runs
    assert found is not None
    return [run.nodes for run in found.result()]


def test_each_run_of_the_placer_is_kept_apart() -> None:
    assert runs(
        line(f"x: (_Arg): {CPU}"),
        line(f"MatMul: (MatMul): {GPU}"),
        line(f"Neg: (Neg): {GPU}"),
        line(f"MatMul/y: (Const): {GPU}"),
        line(f"x: (_Arg): {CPU}"),
        line(f"MatMul: (MatMul): {CPU}"),
        line(f"Neg: (Neg): {CPU}"),
        # Without arguments a run is recognised by names that come again.
        line(f"MatMul: (MatMul): {GPU}"),
        line(f"Add: (AddV2): {GPU}"),
    ) == [
        (("MatMul", "MatMul", "GPU:0"), ("Neg", "Neg", "GPU:0")),
        (("MatMul", "MatMul", "CPU:0"), ("Neg", "Neg", "CPU:0")),
        (("MatMul", "MatMul", "GPU:0"), ("Add", "AddV2", "GPU:0")),
    ]


def test_threads_that_write_at_once_are_kept_apart() -> None:
    assert runs(
        line(f"x: (_Arg): {CPU}", thread=7),
        line(f"a: (MatMul): {GPU}", thread=7),
        line(f"x: (_Arg): {CPU}", thread=8),
        line(f"b: (MatMul): {CPU}", thread=8),
        line(f"c: (AddV2): {GPU}", thread=7),
    ) == [
        (("a", "MatMul", "GPU:0"), ("c", "AddV2", "GPU:0")),
        (("b", "MatMul", "CPU:0"),),
    ]


def test_what_the_program_did_not_write_is_left_out() -> None:
    assert runs(
        # An eager op, in the function that TensorFlow wraps it in, and the raw line that goes to stdout too.
        line(f"a: (_Arg): {GPU}"),
        line(f"MatMul: (MatMul): {GPU}"),
        f"MatMul: (MatMul): {GPU}",
        line(f"product_RetVal: (_Retval): {GPU}"),
        line(f"Executing op MatMul in device {GPU}", source="execute.cc:1775"),
        # A loop that TensorFlow lowered, and a function that it inlined.
        line(f"x: (_Arg): {GPU}"),
        line(f"while/enter/_2: (Enter): {GPU}"),
        line(f"while: (NoOp): {GPU}"),
        line(f"Func/while/body/_1/input/_59: (Identity): {GPU}"),
        line(f"while/body/_1/while/add: (AddV2): {GPU}"),
        line(f"while/loop_counter: (Const): {GPU}"),
    ) == [(("while/body/_1/while/add", "AddV2", "GPU:0"),)]


def test_a_pause_ends_a_run_and_one_node_of_a_function_is_no_eager_op() -> None:
    def at(text: str, seconds: str) -> str:
        return line(text).replace("1795320255.206864", seconds)

    parser = parsed(
        at(f"x: (_Arg): {GPU}", "1795320255.100000"),
        at(f"AddV2: (AddV2): {GPU}", "1795320255.100010"),
        at(f"StringJoin: (StringJoin): {CPU}", "1795320255.104000"),
        at(f"Identity: (Identity): {CPU}", "1795320255.104010"),
    )
    assert parser.placer_runs is not None
    (run,) = parser.placer_runs.result()
    assert (run.nodes, run.thread, run.at) == ((("StringJoin", "StringJoin", "CPU:0"),), 7, 1795320255.104)


def test_older_prefixes_name_no_thread() -> None:
    old = "2026-11-20 10:00:00.000001: I tensorflow/core/common_runtime/placer.cc:125] "
    assert runs(f"{old}mm: (MatMul): {GPU}", f"mm: (MatMul): {GPU}") == [(("mm", "MatMul", "GPU:0"),)]


def test_nodes_beyond_the_bound_are_counted() -> None:
    found = placer_runs.PlacerRuns()
    for number in range(placer_runs.MAX_NODES + 3):
        found.node(1, f"n{number}", "MatMul", "GPU:0")
    assert found.left_out == 3
    assert len(found.result()[0].nodes) == placer_runs.MAX_NODES


def test_automatic_copies_are_counted_one_by_one() -> None:
    copy = line(
        f"before computing MatMul input #1 was expected to be on {GPU} but is actually on {CPU} (operation running on"
        f" {GPU}). This triggers a copy which can be a performance bottleneck.",
        source="execute.cc:197",
    )
    (found,) = parsed(copy, copy, copy).facts.copies
    assert (found.op, found.input, found.source, found.destination, found.count) == ("MatMul", 1, "CPU:0", "GPU:0", 3)
