"""Functions that TensorFlow traces again and again, and those of which it only needs a few graphs."""

from __future__ import annotations

import pytest

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.program_behavior import RetracedFunction, TraceChange
from gpuwatch.core.model.run import Devices, Placement, Throughput
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from tests.diagnosis.cases import CPU, GPU, draft


def retraced(traces: int, calls: int, *changes: TraceChange, made: int = 1, caller: str = "") -> RetracedFunction:
    return RetracedFunction(
        name="step", place="train.py:4", traces=traces, calls=calls, made=made, changes=changes, caller=caller
    )


def changed(kind: str, times: int, argument: str = "x") -> TraceChange:
    return TraceChange(argument=argument, kind=kind, times=times, examples=("7", "8"))


def told(*functions: RetracedFunction) -> list[Finding]:
    found = diagnose(Evidence(run=draft(group="run", retraced=functions)))
    return [one for one in found if one.id == "function.retraced"]


@pytest.mark.parametrize(
    ("function", "title", "action"),
    [
        (retraced(200, 200, changed("Python int", 199, "epoch")), "epoch is a Python number", "tf.constant(epoch)"),
        (retraced(40, 80, changed("shape", 39)), "the shape or dtype of its argument x", "reduce_retracing"),
        (retraced(40, 40, changed("object", 39)), "x is a Python object", "the same object again"),
        (retraced(40, 40, changed("Python str", 39)), "x is text", "Pass a tensor"),
        (retraced(40, 40, changed("length", 39)), "the structure of its argument x", "one structure"),
        # Each of the two would have it traced again: reduce_retracing alone does not help.
        (
            retraced(40, 40, changed("shape", 39), changed("Python float", 39, "factor")),
            "its argument x differs; its argument factor is a Python number",
            "tf.constant(factor)",
        ),
        (retraced(40, 40, made=40, caller="train.py:9"), "40 tf.functions were created from it", "once"),
        (retraced(40, 40), "in 40 of 40 calls", "what differs"),
        # Most traces have another reason than the one argument that is known to differ.
        (retraced(40, 40, changed("shape", 5)), "in 40 of 40 calls", "what differs"),
    ],
)
def test_the_argument_that_changes_is_named(function: RetracedFunction, title: str, action: str) -> None:
    (found,) = told(function)
    assert title in found.title
    assert action in found.action
    assert (found.severity, found.certainty) == ("warning", "fact")


def test_few_traces_are_normal() -> None:
    assert not told(
        retraced(2, 500, changed("shape", 1)),
        retraced(9, 9, changed("shape", 8)),
        retraced(24, 400, changed("shape", 23)),
        retraced(60, 6000, made=60),
    )


def test_the_worst_come_first_and_not_all_of_them() -> None:
    found = told(*(retraced(traces, traces, changed("shape", traces - 1)) for traces in (20, 50, 30, 40)))
    assert sorted(int(one.title.split(" in ")[1].split()[0]) for one in found) == [30, 40, 50]


@pytest.mark.parametrize(
    ("eager", "graph", "expected"),
    [
        (8, 0, True),
        (4, 0, False),  # a look at a mistake
        (8, 500, False),  # switched off again
    ],
)
def test_functions_that_ran_eagerly_in_their_steps(eager: int, graph: int, expected: bool) -> None:
    run = draft(group="run", results={"eager_functions": {"train_step": {"eager": eager, "graph": graph}}})
    found = [one for one in diagnose(Evidence(run=run)) if one.id == "function.eager"]
    assert bool(found) == expected
    assert not found or (found[0].severity, "train_step: 8 calls" in found[0].evidence[0]) == ("info", True)


GPU_0 = Devices(logical=("/device:GPU:0",))
LOOP = "gradients of a GradientTape"


@pytest.mark.parametrize(
    ("ops", "steps", "step_seconds", "counted", "expected"),
    [
        (5000, 74, 0.005, LOOP, True),
        (5000, 74, 0.5, LOOP, False),  # the ops themselves take the time
        (300, 74, 0.005, LOOP, False),  # calls of a few functions
        (500, 10, 0.005, LOOP, False),
        (5000, 74, 0.005, "batches of Keras", False),
    ],
)
def test_a_loop_of_small_eager_ops(ops: int, steps: int, step_seconds: float, counted: str, expected: bool) -> None:
    speed = Throughput(
        steps=steps,
        warmup_steps=5,
        median_step_seconds=step_seconds,
        p10_step_seconds=step_seconds,
        p90_step_seconds=step_seconds,
        steps_per_second=1 / step_seconds,
        counted=counted,
    )
    run = draft(group="run", devices=GPU_0, throughput=speed, results={"eager_loop": {"ops": ops, "steps": steps}})
    found = [one for one in diagnose(Evidence(run=run)) if one.id == "function.eager"]
    assert bool(found) == expected
    assert not found or "about 67 small ops per step" in found[0].title


@pytest.mark.parametrize(
    ("ops", "seconds", "device", "expected"),
    [
        (9900, 3.0, GPU, True),
        (900, 0.3, GPU, False),  # a few
        (9900, 0.4, GPU, False),  # nobody notices
        (9900, 300.0, GPU, False),  # pauses, or ops that take long
        (9900, 3.0, CPU, False),  # another matter
    ],
)
def test_a_loop_of_small_ops_without_gradients(ops: int, seconds: float, device: str, *, expected: bool) -> None:
    placements = (Placement(op="Mul", dtype="float32", actual=device, count=ops),)
    results = {"eager_loop": {"ops": ops, "steps": 0, "seconds": seconds}}
    run = draft(group="run", devices=GPU_0, placements=placements, results=results)
    found = [one for one in diagnose(Evidence(run=run)) if one.id == "function.eager"]
    assert bool(found) == expected
    assert not found or found[0].title.startswith("The program runs 9900 ")


def test_an_array_within_a_graph() -> None:
    one = ["step", "train.py:9", "float32", "(4000000, 8)", 128_000_000, 3]
    (found,) = (
        finding
        for finding in diagnose(Evidence(run=draft(group="run", results={"large_constants": [one]})))
        if finding.id == "function.constant"
    )
    assert found.severity == "info"
    assert "contains a constant of 122 MiB" in found.title
    assert "used at train.py:9" in found.evidence[0]
    assert "3 traced graphs: 366 MiB" in found.evidence[1]


@pytest.mark.parametrize(
    ("runs", "grown", "line", "tells"),
    [
        (660, 330, "train.py:32", True),
        (40, 40, "", True),
        (100, 20, "train.py:32", True),
        (1000, 20, "train.py:32", False),  # an evaluation once in a while
    ],
)
def test_a_session_whose_graph_grows_in_its_loop(runs: int, grown: int, line: str, *, tells: bool) -> None:
    results = {"graph_growth": [runs, grown, 54, 2600, line]}
    found = [one for one in diagnose(Evidence(run=draft(group="run", results=results))) if "graph grew" in one.title]
    assert len(found) == tells
    for one in found:
        assert f" {grown} of its {runs} runs: from 54 " in one.title
        assert one.evidence == ((f"{line} adds nodes between two runs",) if line else ())
