"""Every NVML call of the metric table with every return code: a reason each time, never a value."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pynvml

from gpuwatch.core.model.metrics import METRICS
from gpuwatch.sim.simulated_machine import SimMachine

# Runs where the simulated NVML can be loaded: LD_LIBRARY_PATH counts at the start of a process.
_EVERY_CALL_EVERY_CODE = """
import json, os, sys
from gpuwatch.core.model.metrics import METRICS, Lane
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.sim.simulated_machine import SimMachine
from gpuwatch.machine.sources.nvidia.nvml_source import NvmlSource

machine = SimMachine.from_environment(os.environ)
codes = json.loads(sys.argv[1])
machine.override(0, "gpm", 1)
machine.override(0, "nvlink_links", 4)
machine.override(0, "nvlink_version", 5)
quick = (Lane.FAST, Lane.SLOW, Lane.ONCE, Lane.GPM)  # what is read on demand takes 20 ms a call
wrong, asked = [], 0
calls = {}
for spec in METRICS:
    if spec.call:
        calls.setdefault((spec.call, spec.fallback), []).append(spec)
def session():
    nvml = NvmlSource()
    nvml.open()
    return nvml
nvml = session()
whole, lacks = nvml.sample(nvml.devices[0], quick)
nvml.close()
right = {3: "not_supported", 4: "permission_denied", 13: "not_supported", 15: "device_lost", 16: "device_lost",
    21: "no_sample", 26: "not_supported"}
needs = {"nvmlDeviceGetMigMode": {"mig.instances"},  # which are none while MIG is off
    "nvmlDeviceGetNvLinkState": {spec.id for spec in METRICS if spec.per_link}}  # how many there are to ask
symbols = {"nvmlDeviceGetMemoryInfo": ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2")}
for (call, fallback), specs in calls.items():
    lanes = (Lane.FAST, Lane.ON_DEMAND) if specs[0].lane is Lane.ON_DEMAND else quick
    divided = call == "nvmlDeviceGetMigDeviceHandleByIndex"  # is asked while MIG is on alone
    machine.set_mig(0, "1g,-,2g" if divided else "off")
    for code in codes:
        if divided and code in (2, 6):
            continue  # an empty place in the list
        nvml = session()
        if specs[0].lane is Lane.GPM:
            nvml.sample(nvml.devices[0], lanes)  # its values need two
        for name in symbols.get(call, (call, fallback)):
            if name:
                machine.inject(name, code=code, device=0)
        readings, missing = nvml.sample(nvml.devices[0], lanes)
        asked += 1
        for spec in specs:
            if spec.id in readings:
                wrong.append(f"{spec.id} code {code}: value {readings[spec.id]!r}")
            elif spec.id not in missing:
                wrong.append(f"{spec.id} code {code}: no reason")
            elif missing[spec.id].reason != right.get(code, "failed") or not missing[spec.id].detail:
                wrong.append(f"{spec.id} code {code}: {missing[spec.id]}")
        others = {s.id for s in METRICS if s.id in whole} - {s.id for s in specs} - needs.get(call, set())
        if lanes is quick and not divided and code not in (15, 16) and not others <= readings.keys():
            wrong.append(f"{call} code {code} took {sorted(others - readings.keys())} along")
        machine.clear_faults()
        nvml.close()
unsaid = [s.id for s in METRICS if s.call and s.lane in quick and s.id not in whole and s.id not in lacks]
machine.set_mig(0, "off")
print(json.dumps({"asked": asked, "calls": len(calls), "wrong": wrong + unsaid, "values": len(whole)}))
"""

CODES = sorted(
    value
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(value, int) and value != 0
)


def test_every_call_with_every_code(sim_machine: Callable[[str], SimMachine]) -> None:
    environment = sim_machine("1x8GiB").environment(os.environ)
    done = subprocess.run(
        [sys.executable, "-c", _EVERY_CALL_EVERY_CODE, json.dumps(CODES)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["wrong"] == []
    assert said["asked"] == said["calls"] * len(CODES) - 2
    assert said["calls"] == len({spec.call for spec in METRICS if spec.call})
    assert said["values"] > 35
