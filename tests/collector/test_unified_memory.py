"""A GPU without memory of its own, such as GB10: NVML supports no nvmlDeviceGetMemoryInfo, and the host's counts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import psutil

from gpuwatch.sim.faults import CODES
from gpuwatch.sim.machine import FOR_EVER, SimMachine
from tests.conftest import gpuwatch


def test_its_memory_is_the_hosts_in_snapshot_and_pick(sim_machine: Callable[[str], SimMachine]) -> None:
    machine = sim_machine("2x4GiB")
    machine.inject("nvmlDeviceGetMemoryInfo*", code=CODES["NOT_SUPPORTED"], device=1, count=FOR_EVER, label="unified")
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
    assert "the host's, which other programs use" in gpuwatch("snapshot", environment=environment).out
    machine.detach(4_100_000)
    picked = gpuwatch("pick", "--count", "2", "--free", "1GiB", environment=environment)
    assert picked.out.count("GPU-") == 2, picked.err
