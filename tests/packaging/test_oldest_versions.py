"""gpuwatch with the oldest versions of what it depends on that pyproject.toml allows.

GPUWATCH_OLDEST_PYTHON names an interpreter whose environment has them (``uv pip install --resolution lowest-direct``).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.sim.simulated_machine import SimMachine
from tests.terminal import Terminal


@pytest.fixture(scope="module")
def oldest() -> str:
    python = os.environ.get("GPUWATCH_OLDEST_PYTHON")
    if not python:
        pytest.skip("GPUWATCH_OLDEST_PYTHON names no interpreter with the oldest versions")
    return python


def run(python: str, *arguments: str, environment: dict[str, str], given: str = "") -> str:
    command = [python, "-m", "gpuwatch", *arguments]
    done = subprocess.run(command, env=environment, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done.stdout


def test_every_reading_is_there_and_nothing_failed(oldest: str, sim_machine: Callable[[str], SimMachine]) -> None:
    machine = sim_machine("2x8GiB")
    document = json.loads(run(oldest, "snapshot", "--json", environment=machine.environment(os.environ)))
    assert len(document["devices"]) == 2
    assert document["problems"] == []
    for device in document["devices"]:
        assert "utilization.gpu_percent" in device["readings"]
        assert {lack["reason"] for lack in device["missing"].values()} <= {"not_supported", "no_sample"}


def test_reports_and_logs(oldest: str, tmp_path: Path, sim_machine: Callable[[str], SimMachine]) -> None:
    environment = sim_machine("2x8GiB").environment(os.environ)
    log = "Created device /job:localhost/replica:0/task:0/device:GPU:0 with 1024 MB memory\n"
    assert json.loads(run(oldest, "explain", "-", "--json", environment=environment, given=log))["lines"] == 1
    run(oldest, "probe", "--list", environment=environment)
    for suffix in ("html", "md", "txt"):
        run(oldest, "report", "-o", str(tmp_path / f"out.{suffix}"), environment=environment)
        assert (tmp_path / f"out.{suffix}").stat().st_size > 500


def test_the_dashboard_draws_every_tab_and_theme(oldest: str, sim_machine: Callable[[str], SimMachine]) -> None:
    machine = sim_machine("2x8GiB")
    terminal = Terminal([oldest, "-m", "gpuwatch"], machine.environment(os.environ), 120, 40)
    assert terminal.drain(30, lambda output: output.count(b"8.0") >= 2) is not None, bytes(terminal.output)[-3000:]
    for key in "23456t1":
        terminal.keys(key)
        terminal.drain(0.4)
    terminal.keys("q")
    assert terminal.close(10) == 0
    assert b"Traceback" not in terminal.output
