"""Programs beside the GPUs, and the workers of those on them: real processes, found in /proc."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.machine.collector import cpu_programs
from gpuwatch.machine.collector.cpu_programs import CpuPrograms
from gpuwatch.machine.sources.process_table import ProcessTable
from tests.waiting import wait_for

_PROGRAM = """
import mmap, os, sys
library = open(sys.argv[1], "rb")
kept = mmap.mmap(library.fileno(), 0, prot=mmap.PROT_READ)
child = os.fork() if sys.argv[2] == "forks" else 0
print(child, flush=True)
while True:
    if child:
        os.wait()
"""
Start = Callable[..., tuple[subprocess.Popen[str], int]]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_programs, "POLL_SECONDS", 0.3)
    monkeypatch.setattr(cpu_programs, "_MIN_BUSY_PERCENT", 5.0)  # a crowded machine gives little to each


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def one(name: str, what: str = "works", **environment: str) -> tuple[subprocess.Popen[str], int]:
        library = tmp_path / name
        library.parent.mkdir(parents=True, exist_ok=True)
        library.write_bytes(b"\0" * 4096)
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(library), what],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            process_group=0,
        )
        running.append(process)
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    yield one
    for process in running:
        os.killpg(process.pid, 9)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def looked(one: CpuPrograms, on_gpus: set[int], until: Callable[[], bool]) -> None:
    """Looks until it is so."""

    def update() -> bool:
        one.update(time.monotonic(), on_gpus)
        return until()

    wait_for(update, lambda: inspect.getsource(until), pause=0.4)


TORCH = "torch/lib/libtorch_cpu.so"


def test_a_busy_program_with_a_framework_is_a_bystander(start: Start) -> None:
    process, _ = start(TORCH, CUDA_VISIBLE_DEVICES="-1")
    one = CpuPrograms(ProcessTable())
    looked(one, set(), lambda: any(found.pid == process.pid for found in one.bystanders))
    (found,) = [found for found in one.bystanders if found.pid == process.pid]
    assert found.framework == "torch"
    assert (found.type, found.device_uuid, found.cuda_visible_devices) == ("H", None, "-1")
    assert (found.number("cpu_percent") or 0) > 5
    assert found.missing["gpu_memory_bytes"].detail == "the process uses no GPU"
    assert found.cuda_loaded is False
    assert process.pid in one.pids


def test_a_probe_of_gpuwatch_is_nobodys_program(start: Start) -> None:
    process, _ = start(TORCH)
    own, _ = start(f"probes/_gpuwatch_fork_server.py/{TORCH}")
    one = CpuPrograms(ProcessTable())
    looked(one, set(), lambda: {process.pid, own.pid} <= one.pids and bool(one.bystanders))
    assert own.pid not in [found.pid for found in one.bystanders]


def test_one_that_has_loaded_libcuda_is_told_apart(start: Start, tmp_path: Path) -> None:
    process, _ = start("torch/lib/libtorch/libcuda.so.1")
    one = CpuPrograms(ProcessTable())
    looked(one, set(), lambda: any(found.pid == process.pid for found in one.bystanders))
    assert [found.cuda_loaded for found in one.bystanders if found.pid == process.pid] == [True]


def test_workers_of_a_process_on_a_gpu_are_its_own_and_no_bystanders(start: Start) -> None:
    process, child = start(TORCH, "forks")
    one = CpuPrograms(ProcessTable())
    looked(one, {process.pid}, lambda: one.workers.get(process.pid, 0.0) > 5)
    assert not any(found.pid in (process.pid, child) for found in one.bystanders)


def test_a_busy_program_without_a_framework_is_nobody(start: Start) -> None:
    process, _ = start("numpy/core.so")
    one = CpuPrograms(ProcessTable())
    for _ in range(4):
        one.update(time.monotonic(), set())
        time.sleep(0.4)  # the program works, as the others have in a test that finds them
    assert not any(found.pid == process.pid for found in one.bystanders)


def test_it_looks_again_only_when_it_is_time_to() -> None:
    one = CpuPrograms(ProcessTable())
    assert one.update(100.0, set())
    assert not one.update(100.2, set())
    assert one.update(100.4, set())
