"""State files of simulated machines: those without a user go when a new machine is made, others never."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine
from gpuwatch.sim.state_files import state_folder

SHAPE = SimShape.parse("1x2GiB")
_OPEN = """
import sys
from gpuwatch.sim.simulated_machine import SimMachine
from gpuwatch.sim.machine_shape import SimShape
machine = SimMachine.open(SimShape.parse("1x2GiB"), name=sys.argv[1] or None)
print(machine.state_path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return state_folder()


def opened(name: str) -> tuple[subprocess.Popen[str], Path]:
    """A process that has a machine open, and the machine's file."""
    process = subprocess.Popen(
        [sys.executable, "-c", _OPEN, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def aged(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def test_what_nobody_uses_goes_and_what_is_in_use_stays(folder: Path) -> None:
    used, used_path = opened("used")
    killed, killed_path = opened("killed")
    shared, shared_path = opened("")
    for process in (killed, shared):
        process.kill()
        process.wait()
    (killed_path.with_suffix(".sys") / "bus").mkdir(parents=True)
    unfinished = folder / "shared-9x9GiB.v3.1.new-77"
    foreign = folder / "shared-2x2GiB.state"  # of before layouts
    for path in (unfinished, foreign):
        path.write_bytes(b"x")
    try:
        assert used_path.exists()
        for path in (used_path, killed_path, shared_path):
            aged(path, 120)
        for path in (unfinished, foreign):
            aged(path, 7200)
        aged(used_path, 1e6)
        made = SimMachine.open(SHAPE, name="new")
        left = {path.name for path in folder.iterdir()}
        # The shared one awaits its next user for an hour.
        assert left == {"lock", used_path.name, shared_path.name, made.state_path.name}
        made.remove()
        aged(shared_path, 7200)
        SimMachine.open(SHAPE, name="newer").remove()
        assert {path.name for path in folder.iterdir()} == {"lock", used_path.name}
    finally:
        used.kill()
        used.wait()


def test_joining_makes_a_machine_young_and_sweeps_nothing(folder: Path) -> None:
    process, path = opened("")
    process.kill()
    process.wait()
    aged(path, 1e6)
    machine = SimMachine.open(SHAPE)
    try:
        assert machine.state_path == path
        assert time.time() - path.stat().st_mtime < 60
    finally:
        machine.remove()
