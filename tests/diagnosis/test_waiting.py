"""A program that waits for its input, or stands still; and what only looks so."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.program_behavior import PipelineStage, Standstill, ThreadStack, Waiting
from gpuwatch.core.model.run import Outcome, Phases, Run, RunError, RunProcess, Throughput, TimedStep
from gpuwatch.core.model.run_memory import Memory, MemoryPoint
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from gpuwatch.explain.diagnosis.runs.finished_run import complete
from gpuwatch.explain.logs.log_parser import parse
from gpuwatch.share.reports import run_report
from tests.diagnosis.cases import draft, machine, on_gpus
from tests.every import every


def stepping(*, busy: float | None = 10.0, steps: int = 60, **fields: Any) -> Run:
    """A program with a step every 0.2 s from 5 s on, and samples of the GPU."""
    speed = Throughput(
        steps=steps,
        warmup_steps=5,
        median_step_seconds=0.2,
        p10_step_seconds=0.2,
        p90_step_seconds=0.2,
        steps_per_second=5.0,
    )
    marks = tuple(TimedStep(t=5 + number / 5, seconds=0.2, number=number + 1) for number in range(steps))
    points = tuple(MemoryPoint(t=float(t), gpu_percent=busy if t < 5 + steps / 5 else 0.0) for t in range(4, 60))
    return on_gpus("x", group="run", throughput=speed, step_times=marks, memory=Memory(timeline=points), **fields)


def uneven(**fields: Any) -> Run:
    """Every tenth step comes after a pause of 2 s."""
    run = stepping(**fields)
    times = (msgspec.structs.replace(one, seconds=2.0 if one.number % 10 == 0 else 0.2) for one in run.step_times)
    return msgspec.structs.replace(run, step_times=tuple(times))


def waiting(
    looked: float = 12.0, waited: float = 0.0, fed: float = 0.0, between: float = 0.0, looks: int = 99
) -> Waiting:
    return Waiting(
        looks=looks,
        looked_seconds=looked,
        input_seconds=waited,
        feeding_seconds=fed,
        places=("train.py:7 in batches",),
        feeds=("data.py:3 in rows",),
        between_seconds=between,
        between=("train.py:9 in load_batch",),
    )


def told(run: Run, cause: str) -> list[Finding]:
    return [one for one in diagnose(Evidence(run=run)) if one.id == cause]


@pytest.mark.parametrize(("run", "says"), [(stepping(), "5.00 ±0.00 steps/s, median step 200 ms"), (uneven(), "2.52")])
def test_the_speed_is_no_median_of_steps_that_only_queue_work(run: Run, says: str) -> None:
    told_speed = dict(run_report._facts(run))["speed"]
    assert told_speed.startswith(says)
    assert ("on average" in told_speed) == (says == "2.52")


@pytest.mark.parametrize(
    ("seen", "says", "line"),
    [
        (waiting(waited=11.0), "waits for its next batch 92 % of the time", "train.py:7 in batches"),
        (waiting(looked=3.8, fed=3.72), "runs Python code for the next batch 98 % of the time", "data.py:3 in rows"),
        (waiting(looked=2.1, fed=1.85), "runs Python code for the next batch 88 % of the time", "data.py:3 in rows"),
        (waiting(looked=1.1, fed=1.05, looks=22), "runs Python code for the next batch 95 % of the time", "in rows"),
        (waiting(fed=11.5), "the dataset runs Python code for the next batch 96 % of the time", "data.py:3 in rows"),
        (waiting(between=9.0), "waits between steps: the program runs its own Python code 75 % of", "load_batch"),
        (waiting(waited=3.0, between=4.0), "its own Python code 58 % of the time", "train.py:7 in batches"),
    ],
)
def test_time_at_the_input_is_told_with_its_line(seen: Waiting, says: str, line: str) -> None:
    (found,) = told(stepping(waiting=seen), "input.bound")
    assert says in found.title
    assert found.certainty == "likely"
    assert any(line in text for text in found.evidence)
    assert ("out of the loop" in found.action) == ("between steps" in found.title)
    assert any("utilization 10 %" in text for text in found.evidence)


def test_a_stage_of_a_dataset_that_never_rests_is_told() -> None:
    run = stepping(waiting=waiting(), pipeline=PipelineStage(seconds=10.0, busy_seconds=9.6, stage="MapAndBatch"))
    (found,) = told(run, "input.bound")
    assert "MapAndBatch works 96 %" in found.title
    assert found.evidence[0].startswith("9.6 of 10.0 s ")


@every(
    [
        stepping(waiting=waiting(), pipeline=PipelineStage(seconds=10.0, busy_seconds=8.0, stage="Map")),  # it rests
        stepping(waiting=waiting(), pipeline=PipelineStage(seconds=4.0, busy_seconds=4.0, stage="Map")),
        stepping(waiting=waiting(), busy=85.0, pipeline=PipelineStage(seconds=10.0, busy_seconds=9.9, stage="Map")),
        stepping(waiting=waiting(waited=4.0)),  # evaluations, checkpoints: other time
        stepping(waiting=waiting(looked=1.5, waited=1.5, looks=3)),  # hardly looked at
        stepping(waiting=waiting(looked=0.9, fed=0.9, looks=18)),  # nobody notices
        stepping(waiting=waiting(looked=1.1, fed=0.8, looks=22)),
        stepping(waiting=waiting(looked=4.0, waited=3.0)),
        stepping(waiting=waiting(waited=10.0), steps=10),
        stepping(waiting=waiting(waited=11.0), steps=5),
        stepping(waiting=waiting(looked=4.0, between=4.0)),
        stepping(waiting=waiting(waited=11.0), busy=85.0),  # the GPU is at work all the same
        stepping(waiting=waiting(fed=12.0), busy=85.0),  # it fills a buffer that is large enough
        stepping(waiting=waiting(fed=12.0), busy=None),  # nothing tells whether it waits
        stepping(waiting=waiting(between=4.0)),
        stepping(waiting=waiting(between=9.0), busy=None),
        uneven(waiting=waiting(between=9.0)),  # it validates every ten steps
        stepping(waiting=waiting(fed=9.0)),  # it is asked less often than it could make them
        stepping(),
    ]
)
def test_what_is_not_starved_for_input(run: Run) -> None:
    assert not told(run, "input.bound")


def stalled(**fields: Any) -> Run:
    """A program whose last step was at 17 s, interrupted at 50 s."""
    found = Standstill(
        since_seconds=17.0,
        until_seconds=49.0,
        stood_seconds=30.0,
        cpu_seconds=0.1,
        steps=60,
        threads=(
            ThreadStack(name="MainThread", place="train.py:9 in fetch", frames=("queue.py:171 in get",)),
            ThreadStack(name="loader", frames=("socket.py:1 in recv",)),
        ),
    )
    changed = msgspec.structs.replace(
        found, **{name: fields.pop(name) for name in list(fields) if hasattr(found, name)}
    )
    run = stepping(standstill=changed, phases=Phases(total_seconds=50.0), verdict="interrupted")
    return msgspec.structs.replace(run, **fields)


def test_a_standstill_is_told_with_the_lines_of_each_thread() -> None:
    (found,) = told(stalled(), "program.stalled")
    assert re.search(" 33 s: .* train.py:9 in fetch$", found.title)
    assert "MainThread: queue.py:171 in get" in found.evidence
    assert "loader: socket.py:1 in recv" in found.evidence
    killed = stalled(verdict="error", outcome=Outcome(signal=9))
    assert told(killed, "program.stalled")


_DUMP = (
    "Thread 0x00007ff4479fd6c0 (most recent call first):",
    '  File "train.py", line 9 in fetch',
    "",
    "Current thread 0x00007ffa71870280 (most recent call first):",
    '  File "train.py", line 30 in <module>',
)


def limited(*log: str, code: int = 1, **fields: Any) -> Run:
    return stalled(verdict="error", outcome=Outcome(exit_code=code), log_tail=log, **fields)


@pytest.mark.parametrize("line", ["Timeout (0:00:22)!", "Timeout (1:30:00.500000)!"])
def test_a_standstill_that_the_programs_own_timer_ended_is_told(line: str) -> None:
    (found,) = told(limited("step 60", line, *_DUMP, since_seconds=38.0), "program.stalled")
    assert found.title.endswith(" train.py:9 in fetch")
    assert found.evidence[0] == f"its faulthandler ended it: {line}"


@pytest.mark.parametrize(
    "run",
    [
        limited("Timeout (0:00:22)!", *_DUMP, "step 61"),  # it went on
        limited("Timeout (0:00:22)!", *_DUMP, code=3),
        limited("Timeout (0:00:22)!", *_DUMP, cpu_seconds=20.0),
        limited("Timeout (0:00:22)!", *_DUMP, errors=(RunError(type="ValueError", message="x"),)),
        limited("request: Timeout (0:00:22)!", *_DUMP),
        limited(*_DUMP),  # of another signal
    ],
)
def test_what_the_programs_own_timer_did_not_end(run: Run) -> None:
    assert not told(run, "program.stalled")


@pytest.mark.parametrize(
    "run",
    [
        stalled(verdict="ok", outcome=Outcome(exit_code=0)),  # it did something else, and ended
        stalled(verdict="error", outcome=Outcome(exit_code=1)),
        stalled(cpu_seconds=20.0),  # it computes
        stalled(stood_seconds=4.0),
        stalled(since_seconds=40.0),
        stalled(step_times=(TimedStep(t=17.0, seconds=14.0, number=60),)),  # its pauses are long
        stalled(memory=Memory(timeline=(MemoryPoint(t=30.0, gpu_percent=97.0),))),  # one long step
        stalled(standstill=None),
    ],
)
def test_what_stands_still_for_a_reason(run: Run) -> None:
    assert not told(run, "program.stalled")


_CLUSTER = '{"cluster": {"worker": ["a:1", "b:2", "c:3"]}, "task": {"type": "worker", "index": 0}}'
_JOINED = (
    "I0000 00:00:1.5 4 coordination_service.h:529] /job:worker/replica:0/task:{} has connected to coordination service."
)
_WAITS = "I0000 00:00:1.5 4 coordination_service.cc:502] Waiting for {}/3 tasks to connect."
_ASKED = "I0000 00:00:1.5 4 coordination_service.cc:505] Example stragglers:"


def cluster(*log: str, config: str = _CLUSTER, **fields: Any) -> Run:
    """A launcher of workers, of which one was started and killed."""
    worker = RunProcess(pid=20, environment={"TF_CONFIG": config}, exit_code=-9)
    values = {"verdict": "error", "outcome": Outcome(exit_code=3), "processes": (worker,), **fields}
    return draft("run", group="run", log_tail=log, **values)


@pytest.mark.parametrize(
    ("missing", "who"),
    [((1, 2), "2 of 3 tasks that never connected: worker 1, worker 2"), ((2,), "1 of 3 tasks that never connected: w")],
)
def test_a_cluster_that_waits_for_a_worker_is_told_with_who_is_missing(missing: tuple[int, ...], who: str) -> None:
    log = [
        _JOINED.format(0),
        _WAITS.format(len(missing)),
        _ASKED,
        *(f"/job:worker/replica:0/task:{n}" for n in missing),
    ]
    run = cluster(*log, "I0000 00:00:1.5 4 agent.cc:245] Coordination agent has successfully connected.")
    (found,) = told(run, "program.stalled")
    assert f"until the end for {who}" in found.title
    assert "TF_CONFIG: worker 2 is c:3" in found.evidence
    assert found.evidence[-1].endswith("20 was ended by SIGKILL")
    assert complete(run, parse("\n".join(log)), machine()).primary == "program.stalled"
    (found,) = told(cluster(*log, config="no JSON"), "program.stalled")
    assert not any("TF_CONFIG" in line for line in found.evidence)


@pytest.mark.parametrize(
    "run",
    [
        cluster(_WAITS.format(1), _ASKED, "/job:worker/replica:0/task:2", _JOINED.format(2)),
        cluster(_JOINED.format(0), _WAITS.format(1), _ASKED, _JOINED.format(2), _WAITS.format(0), "a worker's error"),
        cluster(_WAITS.format(0), "its beginning is not kept"),
        cluster(_WAITS.format(1), _ASKED, verdict="ok", outcome=Outcome(exit_code=0)),
        cluster(_JOINED.format(0), _WAITS.format(1), "… 90 earlier lines not kept", "step 7"),
        cluster(_WAITS.format(1), step_times=(TimedStep(t=17.0, seconds=1.0, number=60),)),
        cluster("a line about: Waiting for 1/2 tasks"),
        cluster(),
    ],
)
def test_a_cluster_that_is_complete_or_not_known_is_not_waiting(run: Run) -> None:
    assert not told(run, "program.stalled")


def called(
    kind: str = "predict", *, count: int = 40, batches: int = 40, inside: float = 0.01, span: float = 9.0
) -> Run:
    """Calls of 0.1 s each."""
    calls = {kind: [count, batches, "agent.py:9", 0.1, inside]}
    return stepping(busy=1.0, results={"keras_calls": {"calls": calls, "seconds": span}})


@pytest.mark.parametrize(
    ("kind", "helps"),
    [("predict", "call the model itself"), ("fit", "train_on_batch()"), ("evaluate", "test_on_batch()")],
)
def test_many_calls_for_one_batch_each_are_told(kind: str, helps: str) -> None:
    (found,) = told(called(kind), "input.bound")
    assert f" 40 calls of {kind}()" in found.title
    numbers = rf"agent.py:9: {kind}\(\) ×40 for 40 batches, 100 ms .* 10 ms "
    assert re.match(numbers, found.evidence[0])
    assert re.search("3.6 s .* 9.0 s", found.evidence[1])
    assert helps in (found.action or "")


@pytest.mark.parametrize(
    "run",
    [
        called(count=5, batches=5),  # a few
        called(batches=400),  # of many batches each
        called(inside=0.09),  # the model's own time
        called(span=60.0),  # beside much else
        called(count=25, batches=25, inside=0.07, span=1.0),  # nothing that anybody notices
    ],
)
def test_calls_that_cost_little_are_not_told(run: Run) -> None:
    assert not told(run, "input.bound")
