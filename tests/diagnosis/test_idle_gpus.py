"""GPUs that a program takes and leaves idle; of a TF1 session by NVML's utilization: it tells of no allocators."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.run import (
    DeviceMapping,
    Devices,
    Framework,
    Placement,
    PlacementCoverage,
    Run,
    RunProcess,
    Setting,
    Throughput,
    TimedStep,
)
from gpuwatch.core.model.run_memory import DeviceMemory, Holding, Memory, MemoryPoint
from gpuwatch.experiment.probing.run_gpu_memory import DeviceMemoryTracker, MemoryTimeline
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from gpuwatch.explain.diagnosis.runs.finished_run import complete
from gpuwatch.explain.logs.log_parser import parse
from tests.diagnosis.cases import GIB, ON_GPU, draft, machine, process
from tests.every import every


def session(
    *busiest: float | None,
    samples: int = 6,
    seconds: float = 30.0,
    allocators: dict[str, int] | None = None,
    **fields: Any,
) -> Run:
    """A program on as many GPUs, each with its highest utilization, that held them for so long."""
    holder = Holding(pid=7, own=True, first_seconds=3.0, last_seconds=3.0 + seconds)
    mapped = tuple(
        DeviceMapping(
            framework_device=f"/device:GPU:{index}", cuda_ordinal=index, physical_index=index, uuid=f"GPU-{index}"
        )
        for index in range(len(busiest))
    )
    devices = tuple(
        DeviceMemory(
            uuid=f"GPU-{index}",
            index=index,
            process_bytes=22 * GIB,
            own_samples=samples,
            busiest_percent=percent,
            holders=(holder,),
        )
        for index, percent in enumerate(busiest)
    )
    memory = Memory(devices=devices, allocators=allocators or {})
    return draft(**{"group": "run", "device_map": mapped, "memory": memory, "placements": (), **fields})


def told(run: Run) -> list[Finding]:
    return [one for one in diagnose(Evidence(run=run)) if "GPUs that it allocated" in one.title]


def test_a_gpu_that_was_never_seen_at_work_is_told() -> None:
    (found,) = told(session(80.0, 0.0, 0.0))
    assert found.title.endswith(": not GPU:1, GPU:2")
    assert (found.severity, found.certainty) == ("info", "likely")
    how = "utilization at most 0 % in 6 samples, and according to NVML the process held 22.0 GiB"
    assert f"GPU:1 (GPU 1): {how}" in found.evidence
    assert any("at most 80 % in 6 samples" in line for line in found.evidence)
    assert "CUDA_VISIBLE_DEVICES=0" in found.action


@pytest.mark.parametrize(("steps", "idle"), [(32, ["GPU:1"]), (8, [])])
def test_a_short_training_is_told_of_its_idle_gpu(steps: int, idle: list[str]) -> None:
    allocators = {"/device:GPU:0": GIB, "/device:GPU:1": 0}
    seconds = dict.fromkeys(("median_step_seconds", "p10_step_seconds", "p90_step_seconds"), 0.1)
    trained = Throughput(steps=steps, warmup_steps=5, steps_per_second=10.0, **seconds)
    run = session(80.0, 0.0, seconds=10.0, allocators=allocators, throughput=trained)
    assert [found.title.rpartition("not ")[2] for found in told(run)] == idle


def test_nobody_who_asked_for_certain_gpus_is_told_which() -> None:
    """It asked too late for GPU 1, and so uses GPU 0."""
    late = {"CUDA_VISIBLE_DEVICES": Setting(asked="1", note="too late: the devices were there already, with all GPUs")}
    (found,) = told(session(80.0, 0.0, settings=late))
    assert found.action == "Hide unused GPUs."


def test_more_gpus_are_advised_to_what_runs_long() -> None:
    (found,) = told(session(80.0, 0.0, seconds=300.0))
    assert "MirroredStrategy" in found.action


@pytest.mark.parametrize(
    "run",
    [
        session(80.0, 1.0),
        session(0.0, 0.0),  # nothing was computed yet, or no sample saw it
        session(80.0, None),  # not reported
        session(80.0, 0.0, samples=3),
        session(80.0, 0.0, seconds=10.0),
        session(80.0, 0.0, seconds=10.0, allocators={"/device:GPU:0": GIB, "/device:GPU:1": 0}),
        session(80.0, 0.0, placements=(msgspec.structs.replace(ON_GPU, actual="/device:GPU:1"),)),
        session(80.0, 0.0, allocators={"/device:GPU:0": GIB, "/device:GPU:1": GIB}),
    ],
)
def test_what_does_not_show_an_idle_gpu(run: Run) -> None:
    assert not told(run)


def test_utilization_counts_while_the_run_is_on_the_gpu() -> None:
    ledger = DeviceMemoryTracker(None)
    for busy, pids in ((90.0, ()), (5.0, (7,)), (40.0, (7,)), (10.0, (7,)), (99.0, ())):
        ledger.take_snapshot(
            machine(gpus=1, busy=busy, processes=tuple(process(pid, GIB) for pid in pids)), pids, pids, 1.0
        )
    (entry,) = ledger.result(context=False)
    assert (entry.own_samples, entry.busiest_percent) == (3, 40.0)
    missing = machine(gpus=1, processes=(process(7, GIB),))
    del missing.devices[0].readings["utilization.gpu_percent"]
    ledger.take_snapshot(missing, (7,), (7,), 2.0)
    (entry,) = ledger.result(context=False)
    assert (entry.own_samples, entry.busiest_percent) == (4, None)


def stepping(allocators: list[int | None], computes: list[bool | None], **fields: Any) -> Run:
    """A program of PyTorch that steps every second from second 2 on, with a sample in each."""
    points = tuple(
        MemoryPoint(t=2.5 + at, process_bytes=GIB, allocator_bytes=held, computes=ran)
        for at, (held, ran) in enumerate(zip(allocators, computes, strict=True))
    )
    steps = tuple(TimedStep(t=3.0 + at, seconds=1.0, number=2 + at) for at in range(len(points)))
    run = session(0.0, allocators={"cuda:0": GIB // 8})
    memory = msgspec.structs.replace(run.memory, timeline=points, allocator_peak_bytes=GIB // 8)
    torch = Framework(name="torch", version="2.11.0", gpu_build=True)
    return msgspec.structs.replace(run, **{"memory": memory, "step_times": steps, "framework": torch, **fields})


def unused(run: Run) -> list[tuple[str, str]]:
    found = diagnose(Evidence(run=run))
    return [(one.severity, one.certainty) for one in found if "did not use the GPU" in one.title]


@every(
    [
        ([0] * 6, [False] * 6, "fact"),  # its model went back to the CPU
        ([0] * 6, [None] * 6, "likely"),
        ([GIB] * 6, [False] * 6, "likely"),  # its weights stay there, a copy of them works
        ([GIB] * 6, [False] * 5 + [None], ""),  # NVML has a sample of 0 % for a few short kernels
        ([GIB, 2 * GIB] * 3, [False] * 6, ""),  # it makes tensors there
        ([0] * 6, [False] * 5 + [True], ""),
        ([0, 0, 0, 0, 0, GIB], [False] * 6, ""),
        ([0] * 2, [False] * 2, ""),
        ([4096] * 6, [None] * 6, ""),  # a tiny model, perhaps with kernels too short for a sample
        ([None] * 6, [None] * 6, ""),  # of a TF1 session nobody knows
        ([None] * 6, [False] * 6, "likely"),
    ]
)
def test_steps_without_the_gpu_that_the_program_took(
    allocators: list[int | None], computes: list[bool | None], certainty: str
) -> None:
    assert unused(stepping(allocators, computes)) == ([("warning", certainty)] if certainty else [])


def test_what_a_session_held_is_not_told_as_nothing() -> None:
    (found,) = [one for one in diagnose(Evidence(run=stepping([None] * 6, [False] * 6))) if "did not use" in one.title]
    assert "on the GPU in all 6 samples" in found.evidence[0]


@pytest.mark.parametrize("framework", ["tensorflow", "torch"])
def test_the_advice_on_steps_without_the_gpu_is_that_of_the_framework(framework: str) -> None:
    run = stepping([512] * 6, [False] * 6, framework=Framework(name=framework, version="2.11", gpu_build=True))
    (found,) = [one for one in diagnose(Evidence(run=run)) if "did not use the GPU" in one.title]
    assert ("tf.device" in found.action, ".cpu()" in found.action) == (framework == "tensorflow", framework == "torch")
    assert found.title.startswith("Steps 2 to 7 did not use ")
    assert any("in 6 of these samples" in line for line in found.evidence)


def scoped(*others: Placement, held: int = 0, steps: int = 90, unclear: int = 3, **fields: Any) -> Run:
    """A program of short steps, nearly all of whose ops one scope asks to be on the CPU."""
    multiply = Placement(
        op="MatMul", dtype="float32", requested="CPU:0", actual="CPU:0", scope="train.py:25", cuda_kernel=True, count=9
    )
    add = replace(multiply, op="AddV2", count=91)
    speed = Throughput(
        steps=steps,
        warmup_steps=5,
        median_step_seconds=0.002,
        p10_step_seconds=0.002,
        p90_step_seconds=0.002,
        steps_per_second=456.0,
    )
    values: dict[str, Any] = {
        "placements": (multiply, add, *others),
        "placement_coverage": PlacementCoverage(nodes=100, unclear=unclear),
        "devices": Devices(logical=("/device:CPU:0", "/device:GPU:0")),
        "throughput": speed,
        **fields,
    }
    return session(0.0, seconds=1.0, allocators={"/device:GPU:0": held}, **values)


def kept(run: Run) -> list[Finding]:
    return [one for one in diagnose(Evidence(run=run)) if "steps on the CPU" in one.title]


@pytest.mark.parametrize("count", [1, 5])
def test_a_scope_that_keeps_the_whole_training_on_the_cpu_is_a_note_with_its_line(count: int) -> None:
    table = Placement(op="Cast", dtype="int64", actual="CPU:0", count=count)
    (found,) = kept(scoped(table))
    assert (found.severity, found.certainty) == ("info", "fact")
    assert found.title.startswith("tf.device at train.py:25 ")
    assert f"100 of {103 + count} ops" in found.evidence[0]


def test_a_training_that_a_scope_keeps_on_the_cpu_is_not_said_to_be_without_problems() -> None:
    run = complete(scoped(verdict="ok"), parse(""), machine())
    assert not any(found.id == "healthy" for found in run.findings)
    assert run.verdict_reason.startswith("It succeeded. tf.device at")
    other = complete(scoped(verdict="ok", steps=6), parse(""), machine())
    assert "tf.device" not in other.verdict_reason


_ELSEWHERE = Placement(op="MatMul", dtype="float32", actual="CPU:0", scope="train.py:40", requested="CPU:0", count=40)


@pytest.mark.parametrize(
    "run",
    [
        scoped(replace(_ELSEWHERE, actual="GPU:0", requested=None, scope=None, count=1)),  # the GPU does its part
        scoped(_ELSEWHERE),  # two scopes
        scoped(replace(_ELSEWHERE, scope=None, requested=None)),  # TensorFlow chose
        scoped(held=9 << 20),
        scoped(steps=6),
        scoped(unclear=30),
        scoped(throughput=None),
        scoped(placements=(replace(_ELSEWHERE, op="Cast"),)),  # only tables
        scoped(devices=Devices(logical=("/device:CPU:0",)), device_map=()),  # there is no GPU
    ],
)
def test_what_is_on_the_cpu_in_part_or_without_a_gpu_is_not_a_scope_around_all(run: Run) -> None:
    assert not kept(run)


_NO_SAMPLE = Missing("no_sample")


@pytest.mark.parametrize(
    ("own", "other", "busy", "computes"),
    [
        (3.0, None, 3.0, True),
        (0.0, None, 0.0, None),  # a few short kernels, or some a while ago
        (None, None, 0.0, False),
        (None, 50.0, 50.0, False),
        (None, None, 50.0, None),  # the driver samples nobody
    ],
)
def test_whether_a_process_computes_by_its_own_samples(
    own: float | None, other: float | None, busy: float, computes: bool | None
) -> None:
    rows = []
    for pid, share in ((7, own), (8, other)):
        row = process(pid, GIB)
        known = {} if share is None else {"sm_percent": share}
        rows.append(
            msgspec.structs.replace(
                row, readings={**row.readings, **known}, missing={} if known else {"sm_percent": _NO_SAMPLE}
            )
        )
    timeline = MemoryTimeline(0.0)
    timeline.take_snapshot(machine(gpus=1, busy=busy, processes=tuple(rows)), {"GPU-0": GIB}, 0, 1.0, {7})
    assert [point.computes for point in timeline.busiest_timeline.points()] == [computes]


def mirrored(peak: int, *, other: int = 40 << 20) -> Run:
    """A strategy on two GPUs, without counted steps."""
    replicas = {"replicas": {"devices": ["/device:GPU:0", "/device:GPU:1"]}}
    return session(4.0, 0.0, seconds=5.0, allocators={"/device:GPU:0": other, "/device:GPU:1": peak}, results=replicas)


def test_a_replica_without_any_variable_is_told() -> None:
    (found,) = [one for one in diagnose(Evidence(run=mirrored(256))) if one.id == "idle.memory-held"]
    assert "on 2 GPUs, and GPU:1 had no " in found.title
    assert "strategy.scope()" in (found.action or "")


@pytest.mark.parametrize("run", [mirrored(20 << 10), mirrored(256, other=4 << 10), mirrored(40 << 20)])
def test_a_replica_of_a_small_model_is_at_work(run: Run) -> None:
    assert not [one for one in diagnose(Evidence(run=run)) if one.id == "idle.memory-held"]


def ensemble(*chosen: int, sees: int = 2, apart: float = 0.0, **fields: Any) -> Run:
    """Processes that each chose a GPU, and see so many."""
    processes, holders = [], {index: list[Holding]() for index in chosen}
    for number, index in enumerate(chosen):
        mapping = DeviceMapping(framework_device="/device:GPU:0", physical_index=index, uuid=f"GPU-{index}")
        physical = tuple(f"/physical_device:GPU:{seen}" for seen in range(sees))
        processes.append(RunProcess(pid=number, device_map=(mapping,), devices=Devices(physical=physical)))
        began = 1.0 + number * apart
        holders[index].append(Holding(pid=number, own=True, first_seconds=began, last_seconds=began + 5.0))
    memory = Memory(
        devices=tuple(
            DeviceMemory(uuid=f"GPU-{index}", index=index, holders=tuple(of)) for index, of in holders.items()
        )
    )
    return draft(group="run", processes=tuple(processes), memory=memory, placements=(), **fields)


def sharing(run: Run, *, used: int = 0) -> list[str]:
    found = diagnose(Evidence(run=run, snapshot=machine(used=used)))
    return [one.title for one in found if "share GPU" in one.title]


def test_workers_that_share_a_gpu_beside_one_that_none_uses_are_told() -> None:
    told = "2 processes of the program share GPU 0, and 1 of the 2 GPUs that each of them sees had no work"
    assert sharing(ensemble(0, 0)) == [told]


@pytest.mark.parametrize(
    "run",
    [
        ensemble(0, 1),
        ensemble(0, 0, 1),  # more processes than GPUs
        ensemble(0, 0, sees=1),  # nobody gave them another
        ensemble(0, 0, apart=9.0),  # one after the other
    ],
)
def test_workers_that_have_no_free_gpu_are_not_told(run: Run) -> None:
    assert not sharing(run)


def test_a_gpu_that_others_use_is_not_free() -> None:
    assert not sharing(ensemble(0, 0), used=9 * GIB)
