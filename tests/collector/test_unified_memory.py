"""A GPU without memory of its own, such as GB10: NVML has neither its size nor its clock, and the host's counts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import psutil
import pytest

from gpuwatch.core.model.nvml_return import NvmlReturn
from gpuwatch.core.model.reading import Missing, Reason
from gpuwatch.core.model.run_memory import DeviceMemory
from gpuwatch.core.model.snapshot import Device
from gpuwatch.explain.diagnosis.memory.memory_holders import free_memory_advice, others_memory
from gpuwatch.machine.collector.collector import _is_unified
from gpuwatch.sim.simulated_machine import FOR_EVER, SimMachine
from gpuwatch.ui.tables.device_notes import memory_without_processes
from tests.conftest import gpuwatch
from tests.diagnosis.watching import GIB, gpu, ids, sample, watched


def _without(machine: SimMachine, device: int, *functions: str) -> None:
    for number, function in enumerate(functions):
        label = f"{device}.{number}"
        machine.inject(function, code=NvmlReturn["NOT_SUPPORTED"], device=device, count=FOR_EVER, label=label)


def test_its_memory_is_the_hosts_in_snapshot_and_pick(sim_machine: Callable[[str], SimMachine]) -> None:
    machine = sim_machine("2x4GiB")
    _without(machine, 1, "nvmlDeviceGetMemoryInfo*", "nvmlDeviceGetClockInfo", "nvmlDeviceGetBAR1MemoryInfo")
    machine.attach(4_100_000, 1, 1 << 30, sm_percent=20, foreign=True)
    environment = machine.environment(os.environ)
    found = json.loads(gpuwatch("snapshot", "--json", environment=environment).out)
    own, shared = found["devices"]
    assert (own.get("unified_memory", False), shared["unified_memory"]) == (False, True)
    readings = shared["readings"]
    assert readings["memory.total_bytes"] == found["host"]["memory_total_bytes"]
    assert readings["memory.total_bytes"] <= psutil.virtual_memory().total
    assert readings["memory.free_bytes"] + readings["memory.used_bytes"] == readings["memory.total_bytes"]
    assert "memory.unexplained_bytes" not in readings, "other programs of the host hold memory, too"
    assert not [one for one in found["findings"] if one["severity"] == "error"]
    assert "other programs also use" in gpuwatch("snapshot", environment=environment).out
    machine.detach(4_100_000)
    picked = gpuwatch("pick", "--count", "2", "--free", "1GiB", environment=environment)
    assert picked.out.count("GPU-") == 2, picked.err


def test_a_card_whose_size_alone_is_not_supported_has_no_memory_of_the_host(
    sim_machine: Callable[[str], SimMachine],
) -> None:
    machine = sim_machine("2x4GiB")
    _without(machine, 0, "nvmlDeviceGetMemoryInfo*")
    _without(machine, 1, "nvmlDeviceGetMemoryInfo*", "nvmlDeviceGetBAR1MemoryInfo")  # GH200 has no BAR1, but a clock
    environment = machine.environment(os.environ)
    for device in json.loads(gpuwatch("snapshot", "--json", environment=environment).out)["devices"]:
        assert not device.get("unified_memory", False)
        assert device["missing"]["memory.total_bytes"]["reason"] == "not_supported"
        assert "memory.free_bytes" not in device["readings"]
    picked = gpuwatch("pick", "--free", "1GiB", environment=environment)
    assert picked.code
    assert "GPU-" not in picked.out


@pytest.mark.parametrize(
    ("size", "clock", "bar1", "unified"),
    [
        ("not_supported", "not_supported", None, True),
        ("not_supported", "not_supported", 256 << 20, False),
        ("not_supported", None, None, False),
        ("not_supported", "failed", None, False),
        ("failed", "not_supported", None, False),
        (None, "not_supported", None, False),
    ],
)
def test_memory_of_its_own_is_missing_only_if_no_query_finds_any(
    size: Reason | None, clock: Reason | None, bar1: int | None, unified: bool
) -> None:
    lacks = {"memory.total_bytes": size, "clocks.memory_mhz": clock}
    missing = {name: Missing(reason) for name, reason in lacks.items() if reason is not None}
    assert _is_unified({} if bar1 is None else {"bar1.total_bytes": bar1}, missing) is unified


def _filling(at: int, unified: bool) -> Device:
    return gpu(used=2.0 + 0.05 * at, unified_memory=unified)


def test_what_the_hosts_programs_use_is_no_fault_of_the_gpu() -> None:
    """Its memory fills without a finding, its list of processes is whole, and room is made on the host."""
    shared, own = ([sample(at, [_filling(at, unified)]) for at in range(400)] for unified in (True, False))
    assert ids(watched(shared)) == ["healthy"]
    assert ids(watched(own)) == ["memory.growing"]
    unified = shared[-1].devices[0]
    entry = DeviceMemory(uuid="GPU-0", index=0, others_before_bytes=GIB, others_peak_bytes=GIB)
    assert others_memory(unified, entry).max_from_start == GIB
    assert others_memory(own[-1].devices[0], entry).max_from_start == unified.number("memory.used_bytes")
    assert "ps aux" in free_memory_advice(shared[-1], unified)
    assert not memory_without_processes(gpu(unified_memory=True, readings={"memory.unexplained_bytes": None}))
