"""Activity of a GPU's parts: only when wanted, only where there is such a thing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from gpuwatch.core.model.metrics import METRICS, Lane
from gpuwatch.core.model.reading import Missing
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.machine.sources.nvidia.gpm import GpmReader
from gpuwatch.machine.sources.nvidia.nvml_errors import PERMANENT
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import gpuwatch
from tests.sim.attached_process import attach_process
from tests.sources.test_nvml_faults import CODES

Open = Callable[[str], SimMachine]
GIB = 2**30
SPECS = tuple(spec for spec in METRICS if spec.lane is Lane.GPM)
IDS = {spec.id for spec in SPECS}


class Library:
    """A driver with GPM: every metric is what was asked for, by its number."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        self.freed = 0
        self.allocated = 0
        self.functions = functions
        self.values: dict[int, tuple[int, float]] = {}

    def __getattr__(self, name: str) -> Any:
        functions = self.__dict__.get("functions", {})
        return functions.get(name) or getattr(pynvml, name)

    def nvmlGpmQueryDeviceSupport(self, handle: object) -> SimpleNamespace:
        return self.functions.get("support", lambda _: SimpleNamespace(isSupportedDevice=1))(handle)

    def nvmlGpmSampleAlloc(self) -> Any:
        self.allocated += 1
        return pynvml.c_nvmlGpmSample_t()

    def nvmlGpmSampleFree(self, sample: object) -> None:
        self.freed += 1

    def nvmlGpmSampleGet(self, handle: object, sample: object) -> None:
        self.functions.get("get", lambda *_: None)(handle, sample)

    def nvmlGpmMetricsGet(self, request: Any) -> None:
        self.functions.get("metrics", lambda _: None)(request)
        for answer in request.metrics[: request.numMetrics]:
            code, value = self.values.get(answer.metricId, (0, float(answer.metricId)))
            answer.nvmlReturn, answer.value = code, value


def test_the_second_sample_has_values() -> None:
    activity = GpmReader(Library(), SPECS)
    readings, missing, never = activity.read("GPU-a", 1, False)
    assert (readings, never) == ({}, None)
    assert {lacking.reason for lacking in missing.values()} == {"no_sample"}
    assert missing.keys() == IDS
    readings, missing, never = activity.read("GPU-a", 1, False)
    assert readings.keys() == IDS
    assert (missing, never) == ({}, None)
    assert readings["activity.sm_percent"] == pynvml.NVML_GPM_METRIC_SM_UTIL
    assert readings["activity.pcie_tx_bytes_per_second"] == pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC * 2**20


def test_a_metric_that_is_not_there_takes_no_other_along() -> None:
    library = Library()
    library.values = {
        pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: (pynvml.NVML_ERROR_NOT_SUPPORTED, 0.0),
        pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: (0, float("nan")),
    }
    activity = GpmReader(library, SPECS)
    activity.read("GPU-a", 1, False)
    readings, missing, _ = activity.read("GPU-a", 1, False)
    assert missing.keys() == {"activity.sm_occupancy_percent", "activity.dram_percent"}
    assert missing["activity.dram_percent"].reason == "no_sample"
    assert readings.keys() | missing.keys() == IDS


def test_a_device_listed_anew_begins_anew_and_nothing_leaks() -> None:
    library = Library()
    activity = GpmReader(library, SPECS)
    for handle in ("a", "a", "b"):
        readings, _, _ = activity.read("GPU-a", handle, False)
    assert readings == {}, "two sessions are no interval"
    activity.read("GPU-b", "c", False)
    assert library.allocated == 4
    activity.forget({"GPU-b", "unknown"})
    assert library.freed == 2
    activity.forget()
    assert library.freed == 4


def test_who_has_no_gpm_is_asked_once() -> None:
    activity = GpmReader(Library(support=lambda _: SimpleNamespace(isSupportedDevice=0)), SPECS)
    _, missing, never = activity.read("GPU-a", 1, False)
    assert never is not None
    assert "Hopper" in never.detail
    assert missing.keys() == IDS


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("call", ["support", "get", "metrics"])
def test_whatever_fails_is_missing_with_its_reason(call: str, code: int) -> None:
    def fail(*_: object) -> Any:
        raise pynvml.NVMLError(code)

    activity = GpmReader(Library(**{call: fail}), SPECS)
    for _ in range(2):
        readings, missing, never = activity.read("GPU-a", 1, False)
    assert readings == {}
    assert {lacking.code for lacking in missing.values()} == {code}
    assert (never is not None) == (code in PERMANENT)


def test_it_is_asked_for_when_somebody_wants_it_and_no_longer(
    sim_machine: Open, sleeper: Callable[[], int], start_feed: Callable[..., LiveFeed]
) -> None:
    machine = sim_machine("2x8GiB")
    machine.override(0, "gpm", 1)
    machine.override(0, "tensor_percent", 50)
    attach_process(machine, sleeper(), 0, GIB, sm_percent=60, memory_percent=20)
    machine.inject("nvmlGpm*", count=1_000_000)  # counts the calls
    feed = start_feed(machine, 0.2, gpm=False)
    quiet = feed.wait(4, 10)[-1]
    (count,) = machine.faults()
    assert count.calls_left == 1_000_000, "not one call unless somebody opts in"
    assert not IDS & (quiet.devices[0].readings.keys() | quiet.devices[0].missing.keys())
    unasked = quiet.devices[0].get("activity.sm_percent")
    assert isinstance(unasked, Missing)
    assert "--gpm" in unasked.detail
    feed._send_command(gpm=True)
    feed.wait(3, 10)
    first, second = feed.wait(3, 10)[-1].devices
    assert first.readings["activity.sm_percent"] == pytest.approx(60, abs=2)
    assert first.readings["activity.tensor_percent"] == pytest.approx(30, abs=2)
    assert first.missing["activity.fp64_percent"].reason == "not_supported"
    assert "Hopper" in second.missing["activity.sm_percent"].detail
    machine.set_mig(0, "1g")
    for _ in range(60):
        divided = feed.wait(1, 5)[-1].devices[0]
        if divided.mig_instances:
            break
    assert "while MIG is on" in divided.missing["activity.sm_percent"].detail
    (instance,) = feed.wait(4, 10)[-1].devices[0].mig_instances
    assert instance.number("activity.sm_percent") == pytest.approx(60, abs=2), "the part tells what the whole does not"
    assert isinstance(instance.get("activity.pcie_tx_bytes_per_second"), Missing)
    feed._send_command(gpm=False)
    feed.wait(2, 10)
    assert not IDS & feed.wait(2, 10)[-1].devices[0].missing.keys()


def test_instances_of_a_gpu_without_gpm_say_so(sim_machine: Open, start_feed: Callable[..., LiveFeed]) -> None:
    machine = sim_machine("1x8GiB")
    machine.set_mig(0, "1g,2g")
    feed = start_feed(machine, 0.2, gpm=True)
    feed.wait(2, 10)
    for instance in feed.wait(2, 10)[-1].devices[0].mig_instances:
        assert not IDS & instance.readings.keys()
        assert "Hopper" in instance.missing["activity.sm_percent"].detail
    with pytest.raises(KeyError):
        instance.get("utilization.gpu_percent")


def test_dcgm_beside_it_is_warned_of(sim_machine: Open, tmp_path: Path, start_feed: Callable[..., LiveFeed]) -> None:
    machine = sim_machine("1x8GiB")
    engine = tmp_path / "nv-hostengine"
    shutil.copy(shutil.which("sleep") or "sleep", engine)
    running = subprocess.Popen([str(engine), "60"])
    try:
        reasons = {problem.reason for problem in start_feed(machine, 0.2, gpm=True).wait(1, 10)[-1].problems}
        assert "gpm.shared" in reasons
        assert not start_feed(machine, 0.2, gpm=False).wait(1, 10)[-1].problems
    finally:
        running.kill()
        running.wait()
    assert not start_feed(machine, 0.2, gpm=True).wait(1, 10)[-1].problems


def test_at_the_command_line(sim_machine: Open, sleeper: Callable[[], int]) -> None:
    machine = sim_machine("1x8GiB")
    machine.override(0, "gpm", 1)
    machine.attach(sleeper(), 0, GIB, sm_percent=60)
    environment = machine.environment(os.environ)
    told = json.loads(gpuwatch("snapshot", "--gpm", "--json", environment=environment).out)["devices"][0]
    assert told["readings"]["activity.sm_percent"] == pytest.approx(60, abs=3)
    without = json.loads(gpuwatch("snapshot", "--json", environment=environment).out)["devices"][0]
    assert not IDS & (without["readings"].keys() | without["missing"].keys())
