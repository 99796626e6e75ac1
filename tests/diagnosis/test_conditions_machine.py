"""Rules over time on the simulated machine: its NVML, the collector, real processes; only the clock runs faster."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from gpuwatch.core.model.snapshot import Process, Snapshot
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.sim.simulated_machine import SimMachine
from tests.diagnosis.watching import GIB, ids, of

Open = Callable[[str], SimMachine]
FASTER = 5.0
"""Seconds of the watch for each sample of the machine."""
_INTERVAL = 0.1

# Maps a file where a framework has its library, and keeps a core busy, or sleeps.
_PROGRAM = """
import mmap, sys, time
library = open(sys.argv[1], "rb")
kept = mmap.mmap(library.fileno(), 0, prot=mmap.PROT_READ)
print("ready", flush=True)
while True:
    if sys.argv[2] == "sleeps":
        time.sleep(10)
"""


class Watched:
    """A simulated machine that a collector reads, and the watch over it."""

    def __init__(self, machine: SimMachine) -> None:
        self.machine = machine
        self.watch = ConditionEngine()
        self.count = 0
        self.feed = LiveFeed(_INTERVAL, environment=machine.environment(os.environ))
        self.feed.start()

    def samples(self, count: int) -> None:
        """So many more."""
        for _ in range(count):
            self.watch.observe(self._faster(self.feed.wait(1, 20)[-1]))

    def _faster(self, snapshot: Snapshot) -> Snapshot:
        self.count += 1
        passed = self.count * FASTER
        begin = datetime.datetime(2026, 11, 20, 10, 0, tzinfo=datetime.UTC)
        rows = tuple(_busy(process, begin.timestamp()) for process in snapshot.processes)
        return msgspec.structs.replace(snapshot, taken_at=begin + datetime.timedelta(seconds=passed), processes=rows)


def _busy(process: Process, begin: float) -> Process:
    """Begun long before ``begin``; a crowded machine gives little CPU to who wants all of it."""
    readings, cpu = dict(process.readings), process.number("cpu_percent")
    if cpu is not None and cpu > 5:
        readings["cpu_percent"] = max(cpu, 100.0)
    return msgspec.structs.replace(process, create_time=begin - 3000.0, readings=readings)


@pytest.fixture
def watched(sim_machine: Open) -> Iterator[Callable[[str], Watched]]:
    running: list[Watched] = []

    def start(shape: str) -> Watched:
        running.append(Watched(sim_machine(shape)))
        return running[-1]

    yield start
    for one in running:
        one.feed.stop()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[[str, str], int]]:
    """Starts a process that looks like one of a framework: ``program("tensorflow", "works")``."""
    running: list[subprocess.Popen[str]] = []
    names = {"tensorflow": "tensorflow/libtensorflow_framework.so.2", "torch": "torch/lib/libtorch_cpu.so"}

    def start(framework: str, what: str) -> int:
        library = tmp_path / names[framework]
        library.parent.mkdir(parents=True, exist_ok=True)
        library.write_bytes(b"\0" * 4096)
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(library), what], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        running.append(process)
        return process.pid

    yield start
    for one in running:
        one.kill()
        one.wait()
        if one.stdout is not None:
            one.stdout.close()


def test_heat_and_power_are_told_while_they_last(watched: Callable[[str], Watched], sleeper: Callable[[], int]) -> None:
    here = watched("2x24GiB")
    for device in (0, 1):
        here.machine.attach(sleeper(), device, 20 * GIB, sm_percent=97)
    here.samples(10)
    here.machine.override(0, "clock_event_reasons", 0x20)
    here.machine.override(0, "sm_clock_mhz", 900)
    here.machine.override(0, "temperature_celsius", 93)
    here.machine.override(1, "clock_event_reasons", 0x4)
    here.samples(12)
    (hot,) = of(here.watch.findings, "throttle.thermal")
    assert (hot.severity, hot.certainty) == ("warning", "fact")
    assert any("MHz lost" in line for line in hot.evidence)
    (capped,) = of(here.watch.findings, "throttle.power")
    assert capped.severity == "info"
    here.machine.override(0, "clock_event_reasons", 0)
    here.samples(12)
    assert "throttle.thermal" not in ids(here.watch)
    assert [past.id for past in here.watch.past] == ["throttle.thermal"]
    assert here.watch.past[0].until is not None


def test_a_slow_link_is_told_under_load_and_not_at_rest(
    watched: Callable[[str], Watched], sleeper: Callable[[], int]
) -> None:
    here = watched("2x24GiB")
    here.machine.attach(sleeper(), 1, 4 * GIB, sm_percent=90)
    for device in (0, 1):
        here.machine.override(device, "pcie_generation", 1)
    here.samples(40)
    link = of(here.watch.findings, "pcie.degraded")
    assert [found.device_uuid for found in link] == [here.machine.devices()[1].uuid]
    assert link[0].severity == "warning"


def test_memory_held_while_idle_names_its_holder(
    watched: Callable[[str], Watched], program: Callable[[str, str], int]
) -> None:
    here = watched("2x24GiB")
    pid = program("tensorflow", "sleeps")
    here.machine.attach(pid, 0, 20 * GIB)
    here.samples(80)
    (held,) = of(here.watch.findings, "idle.memory-held")
    assert (held.severity, held.pid) == ("warning", pid)
    assert "memory growth" in held.action
    assert any("20.0 GiB of 24.0 GiB" in line for line in held.evidence)


def test_a_program_that_feeds_its_gpu_too_slowly(
    watched: Callable[[str], Watched], program: Callable[[str, str], int]
) -> None:
    here = watched("1x24GiB")
    pid = program("tensorflow", "works")
    # Sampled slowly enough for NVML's window of a second, a load in the middle is a sawtooth's mean.
    here.machine.attach(pid, 0, 8 * GIB, sm_percent=30)
    here.samples(60)
    (found,) = of(here.watch.findings, "input.bound")
    assert (found.certainty, found.pid) == ("likely", pid)
    assert any("of a CPU core" in line for line in found.evidence)
    assert any("framework: tensorflow" in line for line in found.evidence)


def test_a_program_at_full_load_with_a_busy_core_is_healthy(
    watched: Callable[[str], Watched], program: Callable[[str, str], int]
) -> None:
    here = watched("1x24GiB")
    here.machine.attach(program("torch", "works"), 0, 20 * GIB, sm_percent=97)
    here.machine.override(0, "clock_event_reasons", 0x4)
    here.samples(60)
    assert "healthy" in ids(here.watch)
    assert not [found for found in here.watch.findings if found.severity != "info"]


def test_new_errors_and_a_lost_device(watched: Callable[[str], Watched]) -> None:
    here = watched("2x24GiB")
    here.machine.override(0, "ecc_uncorrected", 1)
    here.samples(8)
    assert [found.severity for found in of(here.watch.findings, "hardware.fault")] == ["warning"]
    here.machine.inject("nvmlDevice*", code=15, device=1)
    here.samples(8)
    lost = [found for found in of(here.watch.findings, "hardware.fault") if found.severity == "error"]
    assert [found.device_uuid for found in lost] == [here.machine.devices()[1].uuid]


def test_an_idle_machine_is_healthy_and_says_what_was_looked_at(watched: Callable[[str], Watched]) -> None:
    here = watched("2x24GiB")
    here.samples(30)
    (healthy,) = here.watch.findings
    assert healthy.id == "healthy"
    assert "2 GPUs and 0 processes" in healthy.evidence[0]
