"""What a device did not support is asked for again, without a restart."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from gpuwatch.core.model.nvml_return import NvmlReturn
from gpuwatch.sim.simulated_machine import SimMachine

FAN = 'get("fan.speed_percent")'
ECC = 'get("ecc.uncorrected")'
SAMPLES = """
import sys
from gpuwatch.machine.collector import collector
from gpuwatch.machine.sources.nvidia import nvml_source
nvml_source._RETRY_SECONDS = float(sys.argv[1])
collector._SLOW_SAMPLE_SECONDS = 0.0
one = collector.Collector()
for _ in range(3):
    one.sample()
print(one.sample().devices[0].METRIC, flush=True)
sys.stdin.readline()
print(one.sample().devices[0].METRIC, flush=True)
"""


def told(machine: SimMachine, again: str, metric: str) -> tuple[str, str]:
    """The reading before and after the device has come to support it."""
    command = [sys.executable, "-c", SAMPLES.replace("METRIC", metric), again]
    machine.inject("nvmlDeviceGetFanSpeed*", code=NvmlReturn["NOT_SUPPORTED"], label="fan")
    with subprocess.Popen(
        command, env=machine.environment(os.environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before = process.stdout.readline()
        machine.clear_faults("fan")
        if metric == ECC:
            machine.override(0, "ecc_uncorrected", 5)
        process.stdin.write("\n")
        process.stdin.flush()
        return before.strip(), process.stdout.readline().strip()


def test_what_is_not_supported_is_asked_for_again(sim_machine: Callable[[str], SimMachine]) -> None:
    before, after = told(sim_machine("1x8GiB"), "0", FAN)
    assert "not_supported" in before
    assert "Missing" not in after


def test_but_not_with_every_sample(sim_machine: Callable[[str], SimMachine]) -> None:
    before, after = told(sim_machine("1x8GiB"), "600", FAN)
    assert "not_supported" in before
    assert "not_supported" in after


def test_ecc_that_is_switched_on_is_seen_at_the_next_slow_look(sim_machine: Callable[[str], SimMachine]) -> None:
    before, after = told(sim_machine("1x8GiB"), "600", ECC)
    assert "not_supported" in before
    assert after == "5"
