"""Memory or utilization that the driver does not give: said for each GPU, and nothing is called well over it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpuwatch.core.model.reading import Missing, Reason
from gpuwatch.core.model.snapshot import Device
from gpuwatch.session.snapshots import findings_of
from tests.diagnosis.watching import gpu, ids, sample, seconds, watched

KEYS = ("memory.used_bytes", "utilization.gpu_percent")
WHY = "nvmlDeviceGetMemoryInfo: Unknown Error"


def without(device: Device, reason: Reason, *names: str) -> Device:
    readings = {name: value for name, value in device.readings.items() if name not in names}
    return replace(device, readings=readings, missing=dict.fromkeys(names, Missing(reason, 999, WHY)))


@pytest.mark.fast
def test_each_gpu_whose_key_readings_fail_is_named() -> None:
    blind = [without(gpu(index), "failed", *KEYS) for index in range(2)]
    found = findings_of(sample(0, blind))
    assert [one.device_uuid for one in found] == ["GPU-0", "GPU-1"]
    assert {(one.id, one.severity, one.certainty) for one in found} == {("driver.bad-state", "warning", "fact")}
    assert found[0].title.startswith("GPU 0: memory and utilization")
    assert WHY in found[0].evidence


@pytest.mark.fast
@pytest.mark.parametrize("reason", ["not_supported", "no_sample"])
def test_what_a_gpu_does_not_have_is_no_fault(reason: Reason) -> None:
    assert findings_of(sample(0, [without(gpu(0), reason, *KEYS)])) == ()


@pytest.mark.fast
def test_another_reading_that_fails_is_no_finding() -> None:
    assert findings_of(sample(0, [without(gpu(0), "failed", "power.draw_watts")])) == ()


@pytest.mark.fast
def test_a_lost_gpu_is_not_also_told_as_one_that_cannot_be_read() -> None:
    blind = without(gpu(0), "failed", *KEYS)
    watch = watched(seconds(10, lambda at: sample(at, [blind])))
    assert ids(watch) == ["driver.bad-state"]
    lost = replace(blind, state="lost", state_detail="nvmlDeviceGetMemoryInfo: GPU is lost")
    watched(seconds(10, lambda at: sample(at, [lost]), start=10), watch)
    assert ids(watch) == ["hardware.fault"]
    assert [one.id for one in watch.past] == ["driver.bad-state"]


@pytest.mark.fast
def test_nothing_is_called_well_before_the_finding_appears() -> None:
    blind = [without(gpu(0), "implausible", *KEYS[1:])]
    watch = watched(seconds(5, lambda at: sample(at, [gpu(0)])))
    assert ids(watch) == ["healthy"]
    for start in (5, 6):
        watched(seconds(1, lambda at: sample(at, blind), start=start), watch)
        assert ids(watch) == []
    watched(seconds(9, lambda at: sample(at, blind), start=7), watch)
    assert ids(watch) == ["driver.bad-state"]
