"""Energy since watching began: of the counter where there is one, else of power samples, never 0 for unknown."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Device
from gpuwatch.machine.history.energy import EnergyMeter
from tests.ui import machines

NONE = Missing("not_supported")


def device(index: int = 0, *, joules: float | None, watts: float | None) -> Device:
    readings = {"energy_joules": joules, "power.draw_watts": watts}
    lacks = {name: NONE for name, value in readings.items() if value is None}
    known = {name: value for name, value in readings.items() if value is not None}
    return machines.device(index, readings=known, missing=lacks)


def meter(*shots: tuple[Device, ...]) -> EnergyMeter:
    made = EnergyMeter()
    for tick, devices in enumerate(shots):
        made.observe(machines.snapshot(devices, tick=tick))
    return made


@given(st.lists(st.floats(1.0, 1000.0), min_size=1, max_size=20), st.integers(1, 5))
def test_the_counter_counts_whatever_the_power_says(steps: list[float], every: int) -> None:
    """It is read every few seconds only, and keeps its value in between: from its first change to its last one."""
    counter, shots = 1e7, [(device(joules=1e7, watts=500.0),)]
    for step in steps:
        counter += step
        shots += [(device(joules=counter, watts=500.0),)] * every
    used = meter(*shots).of(machines.uuid(0))
    if len(steps) == 1:
        assert used is None
    else:
        assert used is not None
        assert not used.estimated
        assert used.joules == pytest.approx(counter - 1e7 - steps[0])
        assert used.seconds == (len(steps) - 1) * every
        assert used.mean_watts == pytest.approx(used.joules / used.seconds)


@pytest.mark.parametrize("age", range(5))
def test_the_mean_power_is_true_from_the_first_one_on(age: int) -> None:
    """The first sample may hold a counter that another gpuwatch read seconds ago, which is read every five seconds."""
    made, told = EnergyMeter(), []
    for tick in range(40):
        made.observe(machines.snapshot((device(joules=1e6 + 140.0 * ((tick + age) // 5 * 5), watts=140.0),), tick=tick))
        used = made.of(machines.uuid(0))
        told += [used.mean_watts] if used is not None else []
    assert told
    assert set(told) == {140.0}


@given(st.lists(st.one_of(st.none(), st.floats(0.0, 1000.0)), max_size=20))
def test_without_a_counter_it_is_integrated_and_said_to_be_estimated(watts: list[float | None]) -> None:
    used = meter(*((device(joules=None, watts=one),) for one in watts)).of(machines.uuid(0))
    pairs = [(a, b) for a, b in itertools.pairwise(watts) if a is not None and b is not None]
    if not pairs:
        assert used is None
    else:
        assert used is not None
        assert used.estimated
        assert used.seconds == len(pairs)
        assert used.joules == pytest.approx(sum((a + b) / 2 for a, b in pairs))


def test_a_counter_that_starts_again_is_not_negative() -> None:
    counted = (1e6 - 9, 1e6, 1e6 + 50, 10.0, 40.0)
    used = meter(*((device(joules=one, watts=1.0),) for one in counted)).of(machines.uuid(0))
    assert used is not None
    assert (used.joules, used.seconds) == (80.0, 2.0)


def test_the_machine_leaves_out_what_is_unknown_and_says_so() -> None:
    known, dark = device(0, joules=None, watts=100.0), device(1, joules=None, watts=None)
    whole = meter((known, dark), (known, dark)).machine()
    assert whole is not None
    assert (whole.joules, whole.devices, whole.unknown_devices, whole.estimated) == (100.0, 1, 1, True)
    assert meter((dark,), (dark,)).machine() is None
    assert meter().of("GPU-of-nobody") is None


def test_a_gap_is_not_bridged() -> None:
    made = EnergyMeter()
    for tick in (0, 1, 100, 101):
        made.observe(machines.snapshot((device(joules=None, watts=10.0),), tick=tick))
    used = made.of(machines.uuid(0))
    assert used is not None
    assert (used.joules, used.seconds) == (20.0, 2.0)
