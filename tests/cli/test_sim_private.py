"""Which simulated GPUs a command has: its own, those of its shape, or those of a name."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.core.errors import UsageError
from gpuwatch.sim.machine_shape import SimShape, parse_machine
from gpuwatch.sim.simulated_machine import SimMachine
from gpuwatch.sim.state_files import state_folder
from tests.conftest import gpuwatch

# Memory that no other test asks for, so that the shared machine of this shape is this test's.
SHAPE = "1x1537MiB"
_STATE = "import os; print(os.environ['GPUWATCH_SIM_STATE'])"


@pytest.fixture
def leftovers(sleeper: Callable[[], int]) -> Iterator[SimMachine]:
    """The shared machine of the shape, with a process on it that somebody left behind."""
    machine = SimMachine.open(SimShape.parse(SHAPE))
    machine.attach(sleeper(), device=0, memory_bytes=900 << 20)
    yield machine
    machine.remove()


def states() -> set[str]:
    return {path.name for path in state_folder().glob("*.state") if SHAPE in path.name}


def used(*arguments: str) -> int:
    snapshot = json.loads(gpuwatch("snapshot", *arguments, "--json").out)
    return int(snapshot["devices"][0]["readings"]["memory.used_bytes"])


def test_a_run_has_gpus_of_its_own_that_go_with_it(leftovers: SimMachine, tmp_path: Path) -> None:
    before, out = states(), tmp_path / "run.json"
    watch = ("run", "-q", "--no-save", "--sim", SHAPE, "-o", str(out), "--", sys.executable, "-c")
    first, second = gpuwatch(*watch, _STATE), gpuwatch(*watch, _STATE)
    assert (first.code, second.code) == (0, 0), first.err
    assert len({first.out.strip(), second.out.strip(), str(leftovers.state_path)}) == 3
    assert json.loads(out.read_text())["memory"]["nvml_before_bytes"] in (0, None)
    killed = gpuwatch(*watch, "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert killed.code == -15
    assert states() == before
    # As it did before: a snapshot sees what all of the shape share.
    assert used("--sim", SHAPE) >= 900 << 20


def test_a_name_joins_them_all(tmp_path: Path) -> None:
    name = f"joined-{uuid.uuid4().hex[:8]}"
    both = f"{SHAPE}@{name}"
    machine = SimMachine.open(SimShape.parse(SHAPE), name=name)
    try:
        for command in (("run", "-q", "--no-save"), ("sim",)):
            done = gpuwatch(*command, "--sim", both, "--", sys.executable, "-c", _STATE)
            assert done.out.strip() == str(machine.state_path), done.err
        assert gpuwatch("sim", "fault", "--sim", both, "set", "0", "temperature_celsius", "77").code == 0
        told = json.loads(gpuwatch("snapshot", "--sim", both, "--json").out)
        assert told["devices"][0]["readings"]["temperature.gpu_celsius"] == 77
    finally:
        machine.remove()


def test_under_gpuwatch_sim_the_gpus_stay(leftovers: SimMachine) -> None:
    inner = [sys.executable, "-m", "gpuwatch", "run", "-q", "--no-save", "--sim", SHAPE, "--", sys.executable]
    done = gpuwatch("sim", "--sim", SHAPE, "--", *inner, "-c", _STATE)
    assert done.out.strip() == str(leftovers.state_path), done.err


@pytest.mark.tensorflow
def test_leftovers_change_no_verdict_of_a_probe(leftovers: SimMachine) -> None:
    """900 MiB that a stranger holds on the shared GPUs of this shape."""
    done = gpuwatch("probe", "--config", "default", "--seconds", "0.02", "--sim", SHAPE, "--no-save", "--json")
    run = json.loads(done.out)
    assert (done.code, run["verdict"]) == (0, "ok"), run["verdict_reason"]
    assert run["device_map"][0]["granted_bytes"] >= 1000 << 20
    assert run["memory"]["nvml_before_bytes"] == 0


def test_names() -> None:
    assert parse_machine("2x24GiB") == (SimShape.parse("2x24GiB"), None)
    assert parse_machine(" 2x24GiB @ demo") == (SimShape.parse("2x24GiB"), "demo")
    for wrong in ("2x24GiB@", "2x24GiB@a/b", "2x24GiB@a@b", "@demo"):
        with pytest.raises(UsageError):
            parse_machine(wrong)
    assert gpuwatch("snapshot", "--sim", "2x24GiB@../x").code == 2
    assert os.environ.get("GPUWATCH_SIM_STATE") is None


def test_a_run_sees_its_gpus(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    done = gpuwatch("run", "-q", "--no-save", "--sim", SHAPE, "-o", str(out), "--", sys.executable, "-c", "pass")
    assert done.code == 0, done.err
    (name,) = json.loads(out.read_text())["gpus"]
    assert name.startswith("0 Simulated GPU 1537MiB GPU-")
