"""A kind of GPU that gpuwatch does not know yet: one class is all that the collector needs to show it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

import pytest

from gpuwatch.core.model.metrics import METRICS, Lane
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Connection, Driver, GpuAffinity, Problem, Topology
from gpuwatch.machine.collector import collector as module
from gpuwatch.machine.collector.collector import Collector
from gpuwatch.machine.sources.device_source import (
    DeviceSource,
    GpuProcess,
    MissingReadings,
    Readings,
    SourceDevice,
    SourceUnavailable,
    Utilization,
)

NO_DRIVER = Problem(source="fake", reason="driver.missing", detail="no driver", hint="install it")
NOT_THERE = Missing("not_supported", detail="the vendor's library has no such value")


class Fake:
    """Two cards of a vendor that measures utilization and memory alone."""

    name = "fake"
    driver: Driver | None = None
    simulated = False
    unsettled = False
    problems: tuple[Problem, ...] = ()

    def __init__(self, prefix: str = "FAKE") -> None:
        self.prefix = prefix
        self.devices: list[SourceDevice] = []
        self.works = True
        self.refreshed = 0

    def open(self) -> None:
        if not self.works:
            raise SourceUnavailable(NO_DRIVER)
        if not self.devices:
            self.driver = Driver(version="1.0", cuda_version=None, nvml_version=None)
            self.devices = [SourceDevice(at, f"{self.prefix}-{at}", "Card", f"0000:0{at}:00.0") for at in range(2)]

    def refresh(self) -> None:
        self.refreshed += 1

    def sample(self, device: SourceDevice, lanes: Collection[Lane]) -> tuple[Readings, MissingReadings]:
        readings: Readings = {"utilization.gpu_percent": 40 + device.index, "memory.used_bytes": 3 << 30}
        return readings, {spec.id: NOT_THERE for spec in METRICS if spec.call and spec.id not in readings}

    def processes(self, device: SourceDevice) -> tuple[list[GpuProcess], list[Missing]] | None:
        return ([GpuProcess(os.getpid(), "C", 2 << 30)] if device.index else []), []

    def utilization(self, device: SourceDevice) -> tuple[dict[int, Utilization], Missing | None]:
        return {os.getpid(): Utilization(30, 10, 0, 0)}, None

    def topology(self) -> Topology:
        first, second = (device.uuid for device in self.devices)
        return Topology(
            places=(GpuAffinity(uuid=first), GpuAffinity(uuid=second)),
            connections=(Connection(first=first, second=second, level="PHB", nvlinks=0),),
        )

    def close(self) -> None:
        self.devices = []


Sources = Callable[..., Collector]


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> Sources:
    def make(*sources: DeviceSource[SourceDevice]) -> Collector:
        monkeypatch.setattr(module, "device_sources", lambda xids: sources)
        monkeypatch.setattr(module, "_SLOW_SAMPLE_SECONDS", 0.0)
        return Collector()

    return make


def test_its_devices_and_processes_are_in_the_snapshot(over: Sources) -> None:
    fake = Fake()
    collector = over(fake)
    for _ in range(3):
        snapshot = collector.sample()
    assert [device.uuid for device in snapshot.devices] == ["FAKE-0", "FAKE-1"]
    assert [device.readings["utilization.gpu_percent"] for device in snapshot.devices] == [40, 41]
    assert snapshot.devices[0].missing["temperature.gpu_celsius"] == NOT_THERE
    assert snapshot.devices[0].readings["memory.unexplained_bytes"] == 3 << 30
    assert snapshot.devices[1].readings["memory.unexplained_bytes"] == 1 << 30
    (process,) = snapshot.processes
    assert (process.pid, process.device_uuid, process.readings["sm_percent"]) == (os.getpid(), "FAKE-1", 30)
    assert snapshot.driver is not None
    assert snapshot.driver.version == "1.0"
    assert snapshot.problems == ()
    assert snapshot.topology == fake.topology()
    assert fake.refreshed == 2, "not before the first sample"


def test_two_kinds_stand_side_by_side_and_one_may_be_missing(over: Sources) -> None:
    first, second = Fake("A"), Fake("B")
    second.works = False
    collector = over(first, second)
    snapshot = collector.sample()
    assert [device.uuid for device in snapshot.devices] == ["A-0", "A-1"]
    assert snapshot.problems == (NO_DRIVER,)
    second.works = True
    assert len(collector.sample().devices) == 2, "it is not tried again with every sample"
    for connection in collector._connections:
        connection._tried_at = float("-inf")
    collector.sample()
    snapshot = collector.sample()
    assert [device.uuid for device in snapshot.devices] == ["A-0", "A-1", "B-0", "B-1"]
    assert snapshot.topology is not None
    assert [place.uuid for place in snapshot.topology.places] == ["A-0", "A-1", "B-0", "B-1"]
    assert collector.sample().topology is snapshot.topology, "the same object while nothing changes"


def test_without_any_the_host_remains(over: Sources) -> None:
    fake = Fake()
    fake.works = False
    snapshot = over(fake).sample()
    assert (snapshot.devices, snapshot.driver, snapshot.problems) == ((), None, (NO_DRIVER,))
    assert os.getpid() in {process.pid for process in snapshot.processes}
