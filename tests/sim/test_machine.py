from __future__ import annotations

import os
import stat
import struct
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.sim.environment import ENV_SHAPE, ENV_STATE
from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine
from tests.sim.conftest import REPOSITORY
from tests.waiting import wait_for

GIB = 2**30


def test_devices_are_stable_and_distinct(sim_machine: Callable[[str], SimMachine]) -> None:
    first, again, other = sim_machine("3x8GiB"), sim_machine("3x8GiB"), sim_machine("2x8GiB")
    assert first.devices() == again.devices()
    assert len({device.uuid for device in (*first.devices(), *other.devices())}) == 5
    assert [device.pci_bus_id for device in first.devices()] == ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]
    assert {device.name for device in first.devices()} == {"Simulated GPU 8GiB"}
    assert {device.memory_bytes for device in first.devices()} == {8 * GIB}


def test_two_openers_see_the_same_machine(
    machine: SimMachine, idle_process: Callable[[], subprocess.Popen[bytes]]
) -> None:
    name = machine.name
    other = SimMachine.open(machine.shape, name=name)
    machine.attach(idle_process().pid, 1, 3 * GIB)
    assert other.state_path == machine.state_path
    assert (other.used_bytes(0), other.used_bytes(1)) == (0, 3 * GIB)


def test_environment(machine: SimMachine) -> None:
    base = {"LD_LIBRARY_PATH": f"/a:{machine.library_dir}:/b", "X": "1"}
    env = machine.environment(base)
    assert env["LD_LIBRARY_PATH"] == f"{machine.library_dir}:/a:/b"
    assert env[ENV_SHAPE] == "2x8GiB"
    assert env[ENV_STATE] == str(machine.state_path)
    assert env["X"] == "1"
    assert ENV_STATE not in base
    joined = SimMachine.from_environment(env)
    assert joined is not None
    assert joined.devices() == machine.devices()
    assert SimMachine.from_environment({}) is None


@pytest.mark.parametrize(
    ("own", "seen"),
    [
        (None, "glibc.malloc.hugetlb=1"),
        ("glibc.malloc.check=1", "glibc.malloc.check=1:glibc.malloc.hugetlb=1"),
        ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0"),
    ],
)
def test_tables_of_pools_are_in_huge_pages_unless_asked_otherwise(
    machine: SimMachine, own: str | None, seen: str
) -> None:
    base = {} if own is None else {"GLIBC_TUNABLES": own}
    env = machine.environment(base)
    assert env["GLIBC_TUNABLES"] == seen
    assert machine.environment(env) == env
    assert machine.stripped(env) == base


def test_the_state_is_private(machine: SimMachine) -> None:
    folder = machine.state_path.parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(machine.state_path.stat().st_mode) == 0o600


def _spoil(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(8)  # behind the magic number: the layout's version
        file.write(b"\x63\0\0\0")


def test_a_state_that_does_not_fit_is_replaced(idle_process: Callable[[], subprocess.Popen[bytes]]) -> None:
    shape, name = SimShape.parse("2x8GiB"), f"spoilt-{uuid.uuid4().hex[:8]}"
    old = SimMachine.open(shape, name=name)
    old.attach(idle_process().pid, 0, GIB)
    devices, path = old.devices(), old.state_path
    kept = path.read_bytes()
    old.remove()  # nobody has it open any more
    path.write_bytes(kept)
    _spoil(path)
    fresh = SimMachine.open(shape, name=name)
    try:
        assert fresh.state_path == path
        assert fresh.used_bytes(0) == 0
        assert fresh.devices() == devices
    finally:
        fresh.remove()


def test_a_state_in_use_is_never_replaced(machine: SimMachine) -> None:
    _spoil(machine.state_path)
    before = machine.state_path.stat().st_ino
    with pytest.raises(GpuwatchError, match="in use"):
        SimMachine.open(machine.shape, name=machine.name)
    assert machine.state_path.stat().st_ino == before


def test_each_layout_has_a_file_of_its_own(machine: SimMachine) -> None:
    layout = machine.state_path.name.removeprefix(f"{machine.name}-{machine.shape}.v").removesuffix(".state")
    version, size = map(int, layout.split("."))
    content = machine.state_path.read_bytes()
    assert (version, size) == struct.unpack_from("<II", content, 8)
    assert size == len(content)


@pytest.mark.parametrize("damage", [b"", b"not a state", b"\0" * 4096])
def test_a_damaged_state_is_replaced(machine: SimMachine, damage: bytes) -> None:
    name = machine.name
    machine.state_path.unlink()  # truncating it in place would take it from under this process
    machine.state_path.write_bytes(damage)
    assert SimMachine.open(machine.shape, name=name).used_bytes(0) == 0


def test_many_processes_create_one_machine(sim_machine: Callable[[str], SimMachine]) -> None:
    name = f"race-{uuid.uuid4().hex[:8]}"
    code = f"""
import os, sys
from gpuwatch.sim.simulated_machine import SimMachine
from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.environment import ENV_STATE
machine = SimMachine.open(SimShape.parse("2x8GiB"), name="{name}")
print(os.stat(machine.state_path).st_ino, machine.devices()[0].uuid)
"""
    sim_machine("2x8GiB")  # compiled, so that they race for the state alone
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    answers = {process.communicate(timeout=60)[0] for process in running}
    SimMachine.open(SimShape.parse("2x8GiB"), name=name).remove()
    assert [process.returncode for process in running] == [0] * 6
    assert len(answers) == 1


def test_removed(sim_machine: Callable[[str], SimMachine]) -> None:
    machine = SimMachine.open(SimShape.parse("8GiB"), name=f"removed-{uuid.uuid4().hex[:8]}")
    machine.remove()
    assert not machine.state_path.exists()
    with pytest.raises(GpuwatchError, match="removed"):
        machine.devices()


def test_attach_refuses_what_cannot_be(
    machine: SimMachine, idle_process: Callable[[], subprocess.Popen[bytes]]
) -> None:
    pid = idle_process().pid
    gone = idle_process()
    gone.kill()
    gone.wait()
    with pytest.raises(GpuwatchError, match="no such process"):
        machine.attach(gone.pid, 0, GIB)
    with pytest.raises(GpuwatchError, match="do not fit"):
        machine.attach(pid, 0, 8 * GIB)  # the driver's reserve is taken
    with pytest.raises(GpuwatchError, match="no such simulated GPU: 2"):
        machine.attach(pid, 2, GIB)
    assert machine.used_bytes(0) == 0


def test_the_whole_device_can_be_occupied(
    machine: SimMachine, idle_process: Callable[[], subprocess.Popen[bytes]]
) -> None:
    device = machine.devices()[0]
    whole = device.memory_bytes - device.reserved_bytes
    machine.attach(idle_process().pid, 0, whole)
    assert machine.used_bytes(0) == whole
    with pytest.raises(GpuwatchError, match="do not fit"):
        machine.attach(idle_process().pid, 0, 1)


def test_attach_again_detach_and_death(
    machine: SimMachine, idle_process: Callable[[], subprocess.Popen[bytes]]
) -> None:
    first, second = idle_process(), idle_process()
    machine.attach(first.pid, 0, GIB)
    machine.attach(first.pid, 0, 2 * GIB)  # replaces
    machine.attach(first.pid, 1, GIB)
    machine.attach(second.pid, 0, 3 * GIB)
    assert (machine.used_bytes(0), machine.used_bytes(1)) == (5 * GIB, GIB)
    assert machine.detach(first.pid, device=1) == 1
    assert machine.detach(first.pid) == 1
    assert machine.detach(first.pid) == 0
    assert (machine.used_bytes(0), machine.used_bytes(1)) == (3 * GIB, 0)
    second.kill()
    second.wait()
    wait_for(lambda: machine.used_bytes(0) == 0)  # who has just looked does not look again at once


def test_a_zombie_holds_nothing(machine: SimMachine, idle_process: Callable[[], subprocess.Popen[bytes]]) -> None:
    process = idle_process()
    machine.attach(process.pid, 0, 6 * GIB)
    process.kill()  # and not waited for
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    machine.attach(idle_process().pid, 0, 6 * GIB)  # checks exactly before it says that it does not fit
    assert machine.used_bytes(0) == 6 * GIB


def test_a_foreign_process_is_not_swept(machine: SimMachine) -> None:
    machine.attach(4_000_000, 0, GIB, foreign=True)
    assert machine.used_bytes(0) == GIB
    assert machine.detach(4_000_000) == 1


def test_names_and_tiers(machine: SimMachine) -> None:
    with pytest.raises(GpuwatchError, match="not a name"):
        SimMachine.open(machine.shape, name="../elsewhere")
