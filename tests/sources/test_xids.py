"""Xids: heard from the simulated driver by real pynvml, told as events and in the diagnosis."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

import pynvml
import pytest

from gpuwatch.core.model.nvml_return import NvmlReturn
from gpuwatch.core.model.xids import Xid
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.machine.sources.nvidia import nvml_errors
from gpuwatch.machine.sources.nvidia.nvml_devices import NvmlDevice
from gpuwatch.machine.sources.nvidia.xids import XidReceiver
from gpuwatch.session.snapshots import findings_of
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import gpuwatch
from tests.waiting import wait_for_sample

Watch = Callable[[SimMachine], LiveFeed]


@pytest.fixture
def watched(start_feed: Watch) -> Watch:
    """Starts collectors whose slow look has been done twice, so that they listen."""

    def start(machine: SimMachine) -> LiveFeed:
        feed = start_feed(machine)
        assert len(feed.wait(3, 10)) >= 3
        return feed

    return start


def test_an_xid_is_heard_once_and_told_as_event_and_finding(
    sim_machine: Callable[[str], SimMachine], watched: Watch
) -> None:
    machine = sim_machine("2x8GiB")
    machine.override(1, "xid", 31)  # before anybody listened: told by nobody
    feed, watcher = watched(machine), ConditionEngine()
    before = wait_for_sample(feed, lambda snapshot: True)
    assert [device.xids for device in before.devices] == [(), ()]
    watcher.observe(before)
    assert gpuwatch("sim", "fault", "xid", "0", "79", "--name", str(machine.name)).code == 0
    seen = wait_for_sample(feed, lambda snapshot: bool(snapshot.devices[0].xids))
    (xid,) = seen.devices[0].xids
    assert xid.code == 79
    assert abs(xid.at - time.time()) < 30
    assert seen.devices[1].xids == ()
    (event,) = watcher.observe(seen)
    assert "GPU 0: driver reported Xid 79" in event.text
    assert (event.kind, event.severity, event.certainty) == ("xid.began", "error", "fact")
    (found,) = findings_of(seen)
    assert (found.id, found.severity, found.certainty) == ("hardware.fault", "error", "fact")
    assert found.title == event.text
    machine.override(0, "xid", 999)
    more = wait_for_sample(feed, lambda snapshot: len(snapshot.devices[0].xids) == 2)
    assert more.devices[0].xids[1].code is None
    (event,) = watcher.observe(more)
    assert (event.text, event.severity) == (
        "GPU 0: driver reported an error with an unknown Xid",
        "warning",
    )
    assert watcher.observe(more) == []


def test_a_program_s_fault_is_no_fault_of_the_card(sim_machine: Callable[[str], SimMachine], watched: Watch) -> None:
    machine = sim_machine("1x8GiB")
    feed, watcher = watched(machine), ConditionEngine()
    watcher.observe(wait_for_sample(feed, lambda snapshot: True))
    machine.override(0, "xid", 13)
    seen = wait_for_sample(feed, lambda snapshot: bool(snapshot.devices[0].xids))
    assert [(event.kind, event.severity) for event in watcher.observe(seen)] == [("program.xid", "warning")]
    assert findings_of(seen) == ()


def test_a_driver_that_refuses_is_said_once(sim_machine: Callable[[str], SimMachine], watched: Watch) -> None:
    machine = sim_machine("2x8GiB")
    machine.inject("nvmlDeviceRegisterEvents", code=NvmlReturn["NOT_SUPPORTED"], device=1)
    feed, watcher = watched(machine), ConditionEngine()
    seen = wait_for_sample(feed, lambda snapshot: snapshot.devices[1].xids_missing is not None)
    assert seen.devices[0].xids_missing is None
    (event,) = watcher.observe(seen)
    assert event.kind == "device.no-xids"
    assert event.text.startswith("GPU 1 reports no Xids; ")
    assert watcher.observe(wait_for_sample(feed, lambda snapshot: True)) == []
    told = json.loads(
        gpuwatch("snapshot", "--json", environment=machine.environment(os.environ)).out,
    )
    assert told["devices"][0]["xids"] == []


def device(index: int = 0, *, may_sleep: bool = False) -> NvmlDevice:
    return NvmlDevice(index, f"GPU-{index}", "A", "0000:01:00.0", "9.0", handle=object(), may_sleep=may_sleep)


class Driver:
    """An NVML that answers every call of events with a code."""

    NVMLError = pynvml.NVMLError
    NVML_ERROR_TIMEOUT = pynvml.NVML_ERROR_TIMEOUT
    nvmlEventTypeXidCriticalError = pynvml.nvmlEventTypeXidCriticalError

    def __init__(self, **codes: int) -> None:
        self.codes = codes
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., object]:
        def call(*_: object) -> object:
            self.calls.append(name)
            code = self.codes.get(name, 0)
            if code:
                raise pynvml.NVMLError(code)
            return object()

        return call


@pytest.mark.parametrize("call", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"])
@pytest.mark.parametrize("code", NvmlReturn)
def test_every_failure_of_every_call_is_a_reason(call: str, code: int) -> None:
    driver, one = Driver(**{"nvmlEventSetWait_v2": pynvml.NVML_ERROR_TIMEOUT, call: code}), device()
    xids = XidReceiver(driver)
    for _ in range(2):
        xids.register(one)
        xids.receive([one])
    waits = call == "nvmlEventSetWait_v2" and code == pynvml.NVML_ERROR_TIMEOUT
    assert (one.xids, one.xids_missing is None) == ((), waits)
    if call == "nvmlDeviceRegisterEvents":
        # What will not change is asked once.
        assert driver.calls.count(call) == (1 if code in nvml_errors.PERMANENT else 2)
    xids.forget()
    assert driver.calls.count("nvmlEventSetFree") == (call != "nvmlEventSetCreate") * driver.calls.count(
        "nvmlEventSetCreate"
    )


def test_a_gpu_that_the_kernel_may_suspend_is_left_alone() -> None:
    driver, one = Driver(nvmlEventSetWait_v2=pynvml.NVML_ERROR_TIMEOUT), device(may_sleep=True)
    xids = XidReceiver(driver)
    xids.register(one)
    xids.receive([one])
    assert driver.calls == []
    assert one.xids_missing is not None
    assert "awake" in one.xids_missing.detail


@pytest.mark.parametrize("code", [0, 13, 79, 500, None])
def test_every_xid_has_words(code: int | None) -> None:
    assert Xid(1.0, code).text.isprintable()
    assert Xid(1.0, code).is_hardware_fault is (code == 79)
