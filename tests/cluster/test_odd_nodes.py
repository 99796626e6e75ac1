"""The odd nodes of made-up clusters are named, and no other."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from gpuwatch.core.model.comparison import Comparison, OddFact
from gpuwatch.core.model.run import DeviceMapping, Framework, Run, Setting, Throughput
from gpuwatch.fleet.cluster.odd_nodes import with_odd_nodes

NOW = datetime.datetime(2026, 11, 22, 12, 0, tzinfo=datetime.UTC)
MODEL = "NVIDIA H100 80GB HBM3"
Noise = Callable[[random.Random], float]


def gpu(node: int, index: int) -> str:
    return f"{index} {MODEL} GPU-{node:08x}-0000-4000-8000-{index:012x}"


def run(node: int, step: float = 0.010, *, config: str = "default", gpus: int = 8, driver: str = "580.65.06") -> Run:
    uuid = gpu(node, 0).rpartition(" ")[2]
    return Run(
        config=config,
        group="memory",
        workload="matmul",
        workload_parameters={"size": 8192},
        simulated=False,
        started_at=NOW,
        host=f"n{node}",
        node=f"n{node}",
        settings={"memory_growth": Setting(asked=True, effective=True)},
        environment={"CUDA_VISIBLE_DEVICES": uuid},
        framework=Framework(name="tensorflow", version="2.21.0", python_version="3.12.3"),
        device_map=(DeviceMapping(framework_device="/device:GPU:0", cuda_ordinal=0, physical_index=0, uuid=uuid),),
        throughput=Throughput(
            device="/device:GPU:0",
            steps=100,
            warmup_steps=5,
            median_step_seconds=step,
            p10_step_seconds=step * 0.98,
            p90_step_seconds=step * 1.03,
            steps_per_second=1 / step,
        ),
        verdict="ok",
        driver_version=driver,
        gpus=tuple(gpu(node, index) for index in range(gpus)),
    )


def judge(runs: Sequence[Run]) -> Comparison:
    return with_odd_nodes(Comparison(runs=tuple(runs), columns=()))


def named(document: Comparison) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for fact in document.odd:
        found.setdefault(fact.node, set()).add(fact.what)
    return found


def normal(source: random.Random) -> float:
    return source.lognormvariate(0, 0.015)


def student(source: random.Random) -> float:
    """Student's t with three degrees of freedom, 1 % wide: one node in 450 is 10 % off, one in 10,000 a third."""
    t = source.gauss(0, 1) / (sum(source.gauss(0, 1) ** 2 for _ in range(3)) / 3) ** 0.5
    return math.exp(0.01 * t)


def disturbed(source: random.Random) -> float:
    """Every tenth node has a neighbour that costs it up to a quarter."""
    return normal(source) * (1 + source.random() * 0.25 if source.random() < 0.1 else 1)


def quantized(source: random.Random) -> float:
    """Nearly all alike, to the last digit."""
    return 1.0 if source.random() < 0.9 else 1.02


NOISES = [normal, student, disturbed, quantized]


@pytest.mark.thorough
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("nodes", [4, 7, 16, 64])
@pytest.mark.parametrize("configs", [1, 3])
def test_noise_accuses_nobody(noise: Noise, nodes: int, configs: int) -> None:
    for seed in range(100):
        source = random.Random(seed)
        runs = [
            run(node, 0.010 * (1 + config) * noise(source), config=f"config{config}")
            for node in range(nodes)
            for config in range(configs)
        ]
        assert named(judge(runs)) == {}, seed


@pytest.mark.thorough
@pytest.mark.parametrize("noise", NOISES)
def test_three_planted_nodes_of_64_are_named_and_no_other(noise: Noise) -> None:
    for seed in range(100):
        source = random.Random(seed)
        slow, fewer, other = source.sample(range(64), 3)
        runs = [
            run(
                node,
                0.010 * noise(source) * (3 if node == slow else 1),
                gpus=7 if node == fewer else 8,
                driver="570.86.10" if node == other else "580.65.06",
            )
            for node in range(64)
        ]
        expected = {f"n{slow}": {"speed of default"}, f"n{fewer}": {"number of GPUs"}, f"n{other}": {"driver"}}
        assert named(judge(runs)) == expected, seed


def test_what_is_told_of_a_slow_node() -> None:
    source = random.Random(1)
    runs = [run(node, 0.010 * normal(source) * (3 if node == 5 else 1)) for node in range(16)]
    (fact,) = judge(runs).odd
    assert (fact.node, fact.kind, fact.what, fact.siblings) == ("n5", "speed", "speed of default", 15)
    assert fact.value.endswith("ms per step")
    assert fact.usual.endswith("ms per step")
    assert "times slower; its siblings vary by" in fact.detail
    assert "in 1 of 1 measurements" in fact.detail


def test_a_node_that_is_a_little_slow_in_every_configuration_is_named() -> None:
    source = random.Random(2)
    runs = [
        run(node, 0.010 * normal(source) * (1.2 if node == 5 else 1), config=config)
        for node in range(16)
        for config in ("default", "growth", "limit")
    ]
    assert named(judge(runs)) == {"n5": {"speed of default", "speed of growth", "speed of limit"}}


def test_a_little_slow_in_one_measurement_is_a_note_not_an_accusation() -> None:
    source = random.Random(2)
    runs = [run(node, 0.010 * normal(source) * (1.2 if node == 5 else 1)) for node in range(16)]
    document = judge(runs)
    assert named(document) == {}
    assert [note for note in document.odd_notes if note.startswith("n5 was") and "measure again" in note]


def test_slow_nodes_do_not_hide_each_other() -> None:
    source = random.Random(3)
    runs = [run(node, 0.010 * normal(source) * (3 if node in (1, 2, 3) else 1)) for node in range(16)]
    assert set(named(judge(runs))) == {"n1", "n2", "n3"}


def test_a_node_whose_fast_steps_are_as_fast_as_elsewhere_was_disturbed() -> None:
    runs = [run(node) for node in range(16)]
    throughput = runs[5].throughput
    assert throughput is not None
    runs[5] = replace(
        runs[5], throughput=replace(throughput, median_step_seconds=0.03, p90_step_seconds=0.05, p10_step_seconds=0.01)
    )
    assert named(judge(runs)) == {}


def test_below_four_siblings_nothing_is_judged_and_that_is_said() -> None:
    document = judge([run(node, 0.03 if node == 1 else 0.01, gpus=7 if node == 1 else 8) for node in range(3)])
    assert document.odd == ()
    assert any("too few to judge" in note for note in document.odd_notes)


def test_a_single_machine_is_not_judged() -> None:
    document = judge([run(1, config="default"), run(1, config="growth")])
    assert (document.odd, document.odd_notes) == ((), ())


def test_a_cluster_that_is_divided_accuses_nobody() -> None:
    document = judge([run(node, driver="550.1" if node % 2 else "580.1") for node in range(16)])
    assert document.odd == ()
    assert "driver is divided: 580.1 on 8, 550.1 on 8 nodes" in document.odd_notes


def test_speeds_under_another_driver_are_not_compared() -> None:
    """Half of the nodes have a driver with which they are slower: none of them is odd."""
    runs = [run(n, 0.013 if n % 2 else 0.010, driver="550.1" if n % 2 else "580.1") for n in range(16)]
    assert judge(runs).odd == ()


def test_a_node_without_gpus_among_nodes_with_eight() -> None:
    runs = [run(node) for node in range(8)]
    runs[3] = replace(runs[3], gpus=(), driver_version=None, device_map=(), throughput=None, verdict="fallback")
    facts = {(fact.node, fact.what): fact for fact in judge(runs).odd}
    assert facts["n3", "number of GPUs"].value == "0"
    assert facts["n3", "number of GPUs"].usual == "8"
    assert {node for node, _ in facts} == {"n3"}


def test_another_model_among_equal_ones() -> None:
    runs = [run(node) for node in range(8)]
    runs[3] = replace(runs[3], gpus=tuple(text.replace("H100", "A100") for text in runs[3].gpus))
    document = judge(runs)
    assert named(document) == {"n3": {"GPU model"}}


def change(one: Run, **fields: object) -> Run:
    return replace(one, **fields)


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("tensorflow", {"framework": Framework(name="tensorflow", version="2.20.0", python_version="3.12.3")}),
        ("Python", {"framework": Framework(name="tensorflow", version="2.21.0", python_version="3.11.2")}),
        ("verdict of default", {"verdict": "oom"}),
        ("memory_growth of default", {"settings": {"memory_growth": Setting(asked=True, effective=False)}}),
        ("TF_FORCE_GPU_ALLOW_GROWTH", {"environment": {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}}),
        (
            "device map of default",
            {"device_map": (DeviceMapping(framework_device="/device:GPU:0", cuda_ordinal=0, physical_index=3),)},
        ),
    ],
)
def test_structure(what: str, fields: dict[str, object]) -> None:
    runs = [run(node) for node in range(8)]
    if what == "TF_FORCE_GPU_ALLOW_GROWTH":
        runs = [change(one, environment={what: "false"}) for one in runs]
    runs[3] = change(runs[3], **fields)
    assert named(judge(runs)) == {"n3": {what}}


def test_one_machine_under_two_names_is_noted() -> None:
    runs = [run(node) for node in range(8)]
    runs[3] = replace(runs[3], gpus=runs[2].gpus)
    assert any("n2 and n3 show the same GPUs" in note for note in judge(runs).odd_notes)


def test_hostile_documents_are_judged_without_harm() -> None:
    runs = [run(node) for node in range(8)]
    nan = float("nan")
    throughput = runs[3].throughput
    assert throughput is not None
    runs[3] = replace(runs[3], throughput=replace(throughput, median_step_seconds=nan))
    runs[4] = replace(runs[4], throughput=replace(throughput, median_step_seconds=float("inf")))
    runs[5] = replace(runs[5], throughput=replace(throughput, p10_step_seconds=-1.0), driver_version="\x1b[2J")
    document = judge(runs)
    assert all("\x1b" not in part for fact in document.odd for part in (fact.node, fact.what, fact.value, fact.detail))
    assert isinstance(document.odd[0], OddFact)
