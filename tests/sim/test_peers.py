"""Clients that other people wrote, unchanged, over the simulated NVML.

GPUWATCH_PEER_PYTHON names an interpreter whose environment has nvitop and gpustat.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.sim.simulated_machine import SimMachine
from tests.sim.attached_process import attach_process

GIB = 2**30


@pytest.fixture
def peer() -> Callable[..., str]:
    python = os.environ.get("GPUWATCH_PEER_PYTHON")
    if not python:
        pytest.skip("GPUWATCH_PEER_PYTHON names no interpreter that has nvitop and gpustat")

    def run(machine: SimMachine, *command: str) -> str:
        env = machine.environment({**os.environ, "COLUMNS": "120", "TERM": "dumb"})
        tool = Path(python).parent / command[0]
        done = subprocess.run(
            [str(tool), *command[1:]], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def busy(machine: SimMachine, idle_process: Callable[[], subprocess.Popen[bytes]]) -> tuple[SimMachine, int]:
    process = idle_process()
    attach_process(machine, process.pid, 1, 3 * GIB, sm_percent=70, memory_percent=30)
    return machine, process.pid


def test_gpustat(busy: tuple[SimMachine, int], peer: Callable[..., str]) -> None:
    machine, pid = busy
    gpus = json.loads(peer(machine, "gpustat", "--json"))["gpus"]
    assert [gpu["uuid"] for gpu in gpus] == [device.uuid for device in machine.devices()]
    assert [gpu["memory.used"] for gpu in gpus] == [0, 3072]
    assert [gpu["utilization.gpu"] for gpu in gpus] == [0, 70]
    assert [gpu["utilization.enc"] for gpu in gpus] == [None, None]
    assert [process["pid"] for process in gpus[1]["processes"]] == [pid]
    assert gpus[1]["processes"][0]["gpu_memory_usage"] == 3072
    assert f"sleep/{pid}(3072M)" in peer(machine, "gpustat", "-cpu", "--no-color")


def test_nvitop(busy: tuple[SimMachine, int], peer: Callable[..., str]) -> None:
    machine, pid = busy
    screen = peer(machine, "nvitop", "-1")
    assert screen.count("Simulated GPU 8GiB") == 2
    assert "3072MiB / 8192MiB" in screen
    assert "No running processes found" not in screen
    assert str(pid) in screen
    assert "ERROR" not in screen


def test_nvitop_on_a_divided_gpu(busy: tuple[SimMachine, int], peer: Callable[..., str]) -> None:
    machine, _ = busy
    machine.set_mig(0, "1g,2g")
    screen = peer(machine, "nvitop", "-1")
    assert "1g.1gb @ GI/CI: 7/0" in screen
    assert "2g.2gb @ GI/CI: 3/0" in screen
