"""Six configurations on a GPU of which another process holds most: each names it with its numbers, or is not hit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from gpuwatch.sim.simulated_machine import SimMachine
from tests.forked import gpuwatch_forked

MIB = 1 << 20
HELD = 3300 * MIB
LEFT = 5 * 1024 - 160 - 3300 - 320
"""MiB that are free beside the tenant and a CUDA context; less than TensorFlow's reserve of 1,536."""


@pytest.mark.tensorflow
def test_a_tenant_is_named_by_what_it_hits_and_by_nothing_else(
    sim_machine: Callable[[str], SimMachine], sleeper: Callable[[], int]
) -> None:
    machine = sim_machine("1x5GiB")
    tenant = sleeper()
    machine.attach(tenant, device=0, memory_bytes=HELD)
    configs = ("default", "growth", "session-growth", "limit", "grow-to-limit", "fraction", "virtual")
    arguments = [part for name in configs for part in ("--config", name)]
    # Long enough for NVML to be read while the memory is held, also on a busy machine.
    result = gpuwatch_forked(
        "probe", *arguments, "--seconds", "0.3", "--json", environment=machine.environment(os.environ), timeout=200
    )
    runs = {run["config"]: run for run in json.loads(result.out)["runs"]}
    assert set(runs) == set(configs)
    told = {name: {f["id"]: f for f in run["findings"] if f["severity"] != "info"} for name, run in runs.items()}
    # 1,024 MiB fit into what is left: the tenant is in nobody's way there.
    assert told["limit"] == told["grow-to-limit"] == {}
    for name in set(configs) - {"limit", "grow-to-limit"}:
        assert set(told[name]) == {"memory.other-process"}, name
        found = told[name]["memory.other-process"]
        assert f"pid {tenant}" in found["title"], name
        assert "3.2 GiB of GPU 0's 5.0 GiB" in found["title"], name
    for name in configs:
        (device,) = runs[name]["memory"]["devices"]
        assert device["others_before_bytes"] == device["others_start_bytes"] == device["others_peak_bytes"] == HELD
        holders = {entry["pid"]: entry for entry in device["holders"]}
        assert set(holders) == {tenant, runs[name]["pid"]}
        assert (holders[tenant]["own"], holders[tenant]["peak_bytes"]) == (False, HELD)
        assert holders[runs[name]["pid"]]["peak_bytes"] == runs[name]["memory"]["nvml_peak_bytes"]
        assert device["process_bytes"] + HELD == device["used_bytes"]
        assert runs[name]["memory"]["device_uuid"] == runs[name]["device_map"][0]["uuid"]
    assert runs["limit"]["memory"]["nvml_peak_bytes"] == (1024 + 320) * MIB
    grown = runs["grow-to-limit"]
    assert grown["device_map"][0]["granted_bytes"] == 1024 * MIB
    assert grown["memory"]["nvml_peak_bytes"] < (200 + 320) * MIB
