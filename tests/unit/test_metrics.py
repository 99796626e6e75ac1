from __future__ import annotations

import pynvml
import pytest

from gpuwatch.core.formatting.metric_value_text import metric_value_text
from gpuwatch.core.model.metrics import BY_ID, METRICS, Axis, Lane, MetricSpec
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Device
from tests.every import every


def test_ids_are_unique() -> None:
    assert len(BY_ID) == len(METRICS)


@every(METRICS)
def test_spec_names_things_that_exist(spec: MetricSpec) -> None:
    assert "." in spec.id or spec.id.endswith("_joules")
    assert len(spec.short) <= 6
    for name in (spec.call, spec.fallback):
        if name:
            assert hasattr(pynvml, name), f"pynvml has no {name}"
    for argument in spec.args:
        if isinstance(argument, str):
            assert hasattr(pynvml, argument), f"pynvml has no {argument}"
    if isinstance(spec.axis, Axis) and isinstance(spec.axis.high, str):
        assert spec.axis.high in BY_ID
        assert spec.axis.high != spec.id
    if spec.axis is not None and spec.axis.high_known:
        assert spec.axis.high_known in BY_ID
    if spec.rate_of:
        assert not spec.call
        assert BY_ID[spec.rate_of].counter
        assert spec.lane is BY_ID[spec.rate_of].lane is Lane.SLOW
    elif not spec.call:
        assert spec.lane is Lane.FAST, "derived metrics are made every tick"
    if spec.call == "nvmlDeviceGetFieldValues":
        assert len(spec.args) in (1, 2) or (spec.per_link and not spec.args)
    for field in spec.per_link:
        assert hasattr(pynvml, field), f"pynvml has no {field}"


def test_short_names_are_told_apart() -> None:
    assert len({spec.short for spec in METRICS}) == len(METRICS)


def test_an_axis_ends_where_the_device_says_or_where_it_is_fixed() -> None:
    known = {"temperature.shutdown_celsius": 98.0, "memory.total_bytes": 24.0}
    temperature = BY_ID["temperature.gpu_celsius"].axis
    memory = BY_ID["memory.used_bytes"].axis
    assert temperature is not None
    assert memory is not None
    assert temperature.ends(known.get) == (30, 98.0)
    assert temperature.ends({}.get) == (30, 100)
    assert memory.ends(known.get) == (0, 24.0)
    assert memory.ends({}.get) is None


def test_missing_reads_as_a_dash_and_never_as_zero() -> None:
    for spec in METRICS:
        assert metric_value_text(spec, Missing("failed", code=999)) == "–"


def test_unknown_metric_id_is_an_error() -> None:
    device = Device(index=0, uuid="GPU-0", name="x", pci_bus_id="", readings={"memory.used_bytes": 0}, missing={})
    assert device.get("memory.used_bytes") == 0
    assert isinstance(device.get("memory.free_bytes"), Missing)
    with pytest.raises(KeyError):
        device.get("memory.usde_bytes")


def test_what_moves_with_the_load_is_of_the_same_moment_as_it() -> None:
    """On an H200 323 W "instantaneous" stood beside 83 W drawn, and 1980 MHz beside 345, for up to 5 s."""
    moving = ("power.draw_watts", "power.instant_watts", "clocks.sm_mhz", "clocks.graphics_mhz")
    heat = ("temperature.gpu_celsius", "temperature.margin_celsius")
    assert {BY_ID[name].lane for name in (*moving, *heat)} == {Lane.FAST}
