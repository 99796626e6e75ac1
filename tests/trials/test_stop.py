"""When the measurement of a run ends."""

from __future__ import annotations

import time

import pytest

from gpuwatch.core.model.run import Devices
from gpuwatch.experiment.probing.received_events import ReceivedEvents, StepCount
from gpuwatch.experiment.trials import trial
from gpuwatch.experiment.trials.trial import Goal, StopCondition
from gpuwatch.experiment.trials.trial_plan import StopRule


def stepping(count: int, *, last: float = 0.0, gpu: bool = True) -> ReceivedEvents:
    """A program whose latest step was ``last`` seconds ago, at 10 steps a second."""
    state = ReceivedEvents()
    state.devices = Devices(logical=("/device:CPU:0", *(("/device:GPU:0",) if gpu else ())))
    if count:
        now = time.monotonic()
        first = now - last - count / 10
        state.steps = StepCount(counted="batches of Keras", count=count, first_at=first, last_at=now - last)
    return state


def stop(steps: int = 1000, deadline: float = 10.0) -> StopCondition:
    return StopCondition(Goal(StopRule("steps", steps), deadline=deadline), lambda count: None)


def nobody() -> bool:
    return False


@pytest.mark.parametrize(
    ("count", "last", "seconds", "why"),
    [
        (50, 0.0, 9.0, ""),
        (50, 0.0, 10.0, "deadline"),
        (0, 0.0, 10.0, ""),
        (0, 0.0, 21.0, "deadline"),
        (50, 5.0, 10.0, ""),
        (50, 5.0, 20.0, ""),
        (50, 11.1, 21.1, "deadline"),
    ],
)
def test_a_program_that_stands_still_on_a_gpu_may_be_running_out_of_memory(
    count: int, last: float, seconds: float, why: str
) -> None:
    asked = stop()
    asked(stepping(count, last=last), seconds, nobody)
    assert asked.reason == why


def test_a_program_without_a_gpu_has_no_more_time() -> None:
    assert stop()(stepping(0, gpu=False), 10.0, nobody)


def test_other_processes_have_time_until_the_deadline() -> None:
    asked = stop(steps=20)
    assert not asked(stepping(50), 5.0, lambda: True)
    assert asked(stepping(50), 5.0, nobody)
    assert asked.reason == "steps"
    late = stop(steps=20)
    assert late(stepping(50), 10.0, lambda: True)
    assert late.reason == "deadline"


@pytest.mark.parametrize(
    ("validations", "ended", "says"),
    [
        (None, False, "200 steps"),
        (0, False, "200 steps, no validation seen"),
        (1, False, "200 steps, 1 validation seen"),
        (3, False, "200 steps, 3 validations seen"),
        (0, True, "the whole program"),
    ],
)
def test_only_what_is_known_is_said_of_validation(validations: int | None, ended: bool, says: str) -> None:
    from tests.reports.documents import full_run

    steps = StepCount(counted="batches of Keras", count=200, validations=validations)
    assert trial._covered_work(steps, full_run(verdict="ok"), None, ended_by_itself=ended) == says


def test_a_program_whose_steps_cannot_be_counted_is_measured_by_time() -> None:
    asked = StopCondition(Goal(StopRule("steady", uncounted_seconds=30.0), deadline=200.0), lambda count: None)
    assert not asked(stepping(0, gpu=False), 5.0, nobody)
    assert not asked(stepping(0), 8.0, nobody)
    assert not asked(stepping(0), 37.9, nobody)
    assert asked(stepping(0), 38.0, nobody)
    assert (asked.reason, asked.uncounted_seconds) == ("steps", 30.0)
    by_hand = StopCondition(Goal(StopRule("steps", 200), deadline=200.0), lambda count: None)
    assert not by_hand(stepping(0), 100.0, nobody)
