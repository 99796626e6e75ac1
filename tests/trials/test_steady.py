"""The 95 % interval of a median."""

from __future__ import annotations

import random

import pytest

from gpuwatch.experiment.trials.speed import is_steady, median_step


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
