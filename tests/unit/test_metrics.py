from __future__ import annotations

import pynvml
import pytest

from gpuwatch.formatting.units import reading
from gpuwatch.model.metrics import BY_ID, METRICS, Axis, Lane, MetricSpec
from gpuwatch.model.reading import Missing
from gpuwatch.model.snapshot import Device


def test_ids_are_unique() -> None:
    assert len(BY_ID) == len(METRICS)


@pytest.mark.parametrize("spec", METRICS, ids=lambda spec: spec.id)
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
    if not spec.call:
        assert spec.lane is Lane.FAST, "derived metrics are made every tick"


def test_missing_reads_as_a_dash_and_never_as_zero() -> None:
    for spec in METRICS:
        assert reading(spec, Missing("failed", code=999)) == "–"


def test_unknown_metric_id_is_an_error() -> None:
    device = Device(index=0, uuid="GPU-0", name="x", pci_bus_id="", readings={"memory.used_bytes": 0}, missing={})
    assert device.get("memory.used_bytes") == 0
    assert isinstance(device.get("memory.free_bytes"), Missing)
    with pytest.raises(KeyError):
        device.get("memory.usde_bytes")
