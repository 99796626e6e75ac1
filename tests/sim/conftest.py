"""Programs on simulated machines, each machine private to its test."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.sim.simulated_machine import SimMachine

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def machine(sim_machine: Callable[[str], SimMachine]) -> SimMachine:
    return sim_machine("2x8GiB")


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start Python code in a process on a machine; whatever still runs at the end is killed."""
    running: list[subprocess.Popen[str]] = []

    def launch(machine: SimMachine, code: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), *arguments],
            env=machine.environment({**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield launch
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def run(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., str]:
    """Run Python code on a machine to its end; what it printed."""

    def call(machine: SimMachine, code: str, *arguments: str, **environment: str) -> str:
        process = start(machine, code, *arguments, **environment)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        return out

    return call


@pytest.fixture
def idle_process() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Processes that do nothing, to be attached and killed."""
    running: list[subprocess.Popen[bytes]] = []

    def make() -> subprocess.Popen[bytes]:
        running.append(subprocess.Popen(["sleep", "300"]))
        return running[-1]

    yield make
    for process in running:
        process.kill()
        process.wait()
