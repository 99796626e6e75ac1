"""The 95 % interval of a median."""

from __future__ import annotations

import random

import pytest

from gpuwatch.experiment.probing.step_times import is_steady, median_step


def test_an_interval_needs_six_values() -> None:
    assert median_step([1.0] * 5) is None
    assert median_step([1.0] * 6) is not None


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    draw = random.Random(1)
    for count in (6, 20, 101):
        inside = 0
        for _ in range(2000):
            found = median_step([draw.expovariate(1.0) for _ in range(count)])
            assert found is not None
            inside += found.low_seconds <= 0.6931 <= found.high_seconds
        assert inside / 2000 >= 0.94, count


@pytest.mark.parametrize(("half", "steady"), [(0.019, True), (0.021, False)])
def test_steady_is_two_percent(half: float, steady: bool) -> None:
    times = [1 - half] * 50 + [1.0] + [1 + half] * 50
    assert is_steady(median_step(times)) is steady


def test_steps_that_only_queue_work_count_with_the_wait_for_it() -> None:
    """A step of 0.1 s of work that is queued in 2 ms, and waited for in every tenth."""
    ten = [0.002] * 9 + [0.982]
    found = median_step(ten * 12)
    assert found is not None
    assert found.median_seconds == pytest.approx(0.1)
    assert is_steady(found)


def test_a_few_long_steps_beside_even_ones_are_left_to_the_median() -> None:
    found = median_step(([0.1] * 50 + [1.5]) * 8)
    assert found is not None
    assert found.median_seconds == pytest.approx(0.1)
