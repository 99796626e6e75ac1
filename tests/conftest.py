"""Fixtures that every folder of tests may use."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gpuwatch.sim.machine import SimMachine
from gpuwatch.sim.shape import SimShape

# What a developer's own shell says about GPUs must not reach the tests.
for _name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TF_FORCE_GPU_ALLOW_GROWTH", "GPUWATCH_SIM_STATE"):
    os.environ.pop(_name, None)
# Nor the width of the terminal from which the tests were started: output that nobody sees has its own.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs and settings that tests make are kept here, never among the developer's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUWATCH_CONFIG_FILE", str(tmp_path_factory.mktemp("settings") / "settings.toml"))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


class Result(NamedTuple):
    """How a command line ended."""

    code: int
    out: str
    err: str


def has_cuda_wheel() -> bool:
    """Whether this TensorFlow was built for CUDA: only such a one meets simulated GPUs on the driver tier."""
    found = importlib.util.find_spec("tensorflow")  # not imported: it would load what it finds
    if found is None or found.origin is None:
        return False
    info = Path(found.origin).parent / "python" / "platform" / "build_info.py"
    return info.is_file() and "('is_cuda_build', True)" in info.read_text().replace('"', "'")


def has_driver() -> bool:
    return os.path.exists("/dev/nvidiactl")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = not has_driver()
    for item in items:
        if missing and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a real NVIDIA GPU: there is no /dev/nvidiactl"))


@pytest.fixture
def sim_machine() -> Iterator[Callable[[str], SimMachine]]:
    """Opens private simulated machines: ``sim_machine("2x24GiB")``."""
    opened: list[SimMachine] = []

    def open_machine(shape: str) -> SimMachine:
        machine = SimMachine.open(SimShape.parse(shape), name=f"test-{uuid.uuid4().hex[:12]}")
        opened.append(machine)
        return machine

    yield open_machine
    for machine in opened:
        machine.clear_faults()
        machine.remove()


@pytest.fixture
def sleeper() -> Iterator[Callable[[], int]]:
    """Starts harmless processes and gives their pids; ends them afterwards."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> int:
        process = subprocess.Popen([shutil.which("sleep") or "sleep", "300"])
        started.append(process)
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.wait()


def gpuwatch(*arguments: str, environment: dict[str, str] | None = None, timeout: float = 120) -> Result:
    """Runs the command line as a user would, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "gpuwatch", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)
