"""Accounting mode of simulated GPUs, read by pynvml and by the collector: every process that ended, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from gpuwatch.core.model.snapshot import AccountedProcess, Snapshot
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.machine.recording.gpu_time_and_energy import GpuTimeMeter
from gpuwatch.sim.simulated_machine import SimMachine
from tests.sim.attached_process import attach_process

GIB = 1 << 30
_LOOK = """
import json, sys, pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
found = {"mode": pynvml.nvmlDeviceGetAccountingMode(handle)}
try:
    found["pids"] = pynvml.nvmlDeviceGetAccountingPids(handle)
    for pid in found["pids"]:
        one = pynvml.nvmlDeviceGetAccountingStats(handle, pid)
        shares = [one.gpuUtilization, one.memoryUtilization]
        found[pid] = [*shares, one.maxMemoryUsage, one.time, one.startTime, one.isRunning]
    pynvml.nvmlDeviceGetAccountingStats(handle, 1)
except pynvml.NVMLError as error:
    found["error"] = error.value
print(json.dumps(found))
"""
NOT_SUPPORTED, NOT_FOUND = 3, 6


@pytest.fixture
def machine(sim_machine: Callable[[str], SimMachine]) -> SimMachine:
    return sim_machine("1x8GiB")


def look(machine: SimMachine) -> dict[str, object]:
    """What pynvml reads, in a process of its own."""
    command = [sys.executable, "-c", _LOOK]
    out = subprocess.run(
        command, env=machine.environment(os.environ), capture_output=True, text=True, check=True
    ).stdout
    found: dict[str, object] = json.loads(out)
    return found


def ended(process: subprocess.Popen[bytes]) -> int:
    process.kill()
    process.wait()
    return process.pid


def sleeping() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "300"])


def test_pynvml_reads_running_and_ended_processes(machine: SimMachine) -> None:
    before = sleeping()
    machine.attach(before.pid, 0, GIB, sm_percent=10)
    assert look(machine) == {"mode": 0, "error": NOT_SUPPORTED}
    machine.override(0, "accounting_mode", 1)
    first, second = sleeping(), sleeping()
    began = time.time()
    try:
        attach_process(machine, first.pid, 0, 3 * GIB, sm_percent=40, memory_percent=20)
        machine.attach(second.pid, 0, GIB)
        time.sleep(1.0)  # the time for which it is accounted
        ended(first)
        found = look(machine)
        assert sorted(found["pids"]) == sorted([first.pid, second.pid]), "not one that began before"  # type: ignore[call-overload]
        assert found["error"] == NOT_FOUND
        load, memory_load, peak, milliseconds, start, running = found[str(first.pid)]  # type: ignore[misc]
        assert (load, memory_load, peak, running) == (pytest.approx(40, abs=1), pytest.approx(20, abs=1), 3 * GIB, 0)
        assert 900 <= milliseconds <= 20_000
        assert start / 1e6 == pytest.approx(began, abs=2)
        assert found[str(second.pid)][3] == 0  # type: ignore[index]
        assert found[str(second.pid)][5] == 1  # type: ignore[index]
        assert look(machine)[str(first.pid)] == found[str(first.pid)], "what ended does not change"
    finally:
        for one in (before, second):
            ended(one)


def test_the_collector_tells_each_end_once_also_between_samples(machine: SimMachine) -> None:
    machine.override(0, "accounting_mode", 1)
    feed = LiveFeed(0.25, environment=machine.environment(os.environ))
    feed.start()
    meter = GpuTimeMeter(1.0)
    told: dict[AccountedProcess, None] = {}

    def take(until: Callable[[], bool], seconds: float = 30.0) -> None:
        limit = time.monotonic() + seconds
        while not until() and time.monotonic() < limit:
            for snapshot in feed.wait(1, 5):
                note(snapshot)
        assert until()

    def note(snapshot: Snapshot) -> None:
        meter.add(snapshot)
        told.update(dict.fromkeys(snapshot.devices[0].accounted))

    long = sleeping()
    try:
        count = 0

        def several() -> bool:
            nonlocal count
            count += 1
            return count > 30

        take(several)  # the slow lane has been read
        machine.attach(long.pid, 0, 2 * GIB, sm_percent=50)
        time.sleep(1.5)  # the time for which it is accounted
        short = sleeping()
        machine.attach(short.pid, 0, GIB, sm_percent=5)
        machine.detach(short.pid)  # at once: no sample has it
        ended(short)
        ended(long)
        take(lambda: {one.pid for one in told} == {long.pid, short.pid})
    finally:
        feed.stop()
        ended(long)
    assert len(told) == 2
    (of_long,) = (one for one in told if one.pid == long.pid)
    assert of_long.peak_bytes == 2 * GIB
    assert of_long.gpu_percent == pytest.approx(50, abs=2)
    assert 1.4 <= of_long.used_seconds <= 10
    times = [device for time_ in meter.pop_hours().values() for device in time_.devices]
    assert sum(one.unsampled_processes for one in times) == 1
