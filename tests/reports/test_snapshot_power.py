"""Power and energy of all GPUs in a snapshot: a sum says what it leaves out, and nothing unknown is 0."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.formatting.units import energy
from gpuwatch.core.model.snapshot import Device
from gpuwatch.share.reports.snapshot_report import snapshot_content
from tests.ui import machines


def device(index: int, watts: float | None, joules: float | None) -> Device:
    given_ = {"power.draw_watts": watts, "energy_joules": joules}
    lacks = {name: machines.NOT_SUPPORTED for name, value in given_.items() if value is None}
    return machines.device(index, readings={n: v for n, v in given_.items() if v is not None}, missing=lacks)


def power(*devices: Device) -> str:
    return dict(snapshot_content(machines.snapshot(devices)).facts)["power"]


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (((100, 7200),), "100 W now; 2.0 Wh since the driver was loaded"),
        (((100, 7200), (50, 1000)), "150 W now; 2.3 Wh since the driver was loaded (GPU 0 2.0 Wh, GPU 1 0.3 Wh)"),
        (((100, None), (None, None)), "100 W now, without GPU 1; energy counter –"),
        (((None, None),), "– now; energy counter –"),
        (
            ((None, 3.6e6), (20, None), (20, None)),
            "40 W now, without GPU 0; 1.00 kWh since the driver was loaded, without GPUs 1-2 (GPU 0 1.00 kWh)",
        ),
    ],
)
def test_what_is_said(devices: tuple[tuple[float | None, float | None], ...], expected: str) -> None:
    assert power(*(device(n, *one) for n, one in enumerate(devices))) == expected


_SOME = st.one_of(st.none(), st.floats(0.0, 1e8))


@given(st.lists(st.tuples(_SOME, _SOME), min_size=1, max_size=8))
def test_a_sum_names_every_gpu_that_it_leaves_out(known: list[tuple[float | None, float | None]]) -> None:
    text = power(*(device(n, *one) for n, one in enumerate(known)))
    draw, _, used = text.partition("; ")
    for part, values, none in (
        (draw, [one[0] for one in known], "– now"),
        (used, [one[1] for one in known], "energy counter –"),
    ):
        if all(value is None for value in values):
            assert part == none
        else:
            assert ("without GPU" in part) == (None in values)
    if any(one[1] is not None for one in known):
        assert used.startswith(energy(sum(one[1] for one in known if one[1] is not None)))


def test_without_gpus_there_is_no_such_line() -> None:
    assert "power" not in dict(snapshot_content(machines.snapshot(())).facts)


@pytest.mark.parametrize(
    ("joules", "most", "shown"),
    [
        (812.0, None, "812 J"),
        (812.0, 4000.0, "0.2 Wh"),
        (4000.0, 812.0, "1.1 Wh"),
        (7.2e6, None, "2.00 kWh"),
        (7.2e5, 7.2e6, "0.20 kWh"),
        (5.0, 7.2e6, "<0.01 kWh"),
        (0.0, 7.2e6, "0.00 kWh"),
        (None, 7.2e6, "–"),
    ],
)
def test_the_energies_of_a_column_have_one_unit(joules: float | None, most: float | None, shown: str) -> None:
    assert energy(joules, most) == shown
