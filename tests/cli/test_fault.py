"""``gpuwatch sim fault``: from one terminal upon the machine that another one watches."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import Result, gpuwatch
from tests.waiting import wait_for


@pytest.fixture
def machine() -> Iterator[SimMachine]:
    """A private machine in use: this process has it open."""
    opened = SimMachine.open(SimShape.parse("2x8GiB"), name=f"fault-{uuid.uuid4().hex[:8]}")
    yield opened
    opened.clear_faults()
    opened.remove()


def name_of(machine: SimMachine) -> str:
    assert machine.name is not None
    return machine.name


@pytest.fixture
def fault(machine: SimMachine) -> Callable[..., Result]:
    def put(*arguments: str) -> Result:
        return gpuwatch("sim", "fault", arguments[0], "--name", name_of(machine), *arguments[1:])

    return put


def seen(machine: SimMachine) -> dict[str, Any]:
    done = gpuwatch("snapshot", "--json", environment=machine.environment(os.environ))
    document: dict[str, Any] = json.loads(done.out)
    return document


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Missing command"),
        (["hagn", "30"], "did you mean hang?"),
        (["hang", "soon"], "not a valid float"),
        (["slow"], "DELAY"),
        (["lost", "2"], "no GPU '2'"),
        (["lost", "GPU-ffffffff"], "no GPU"),
        (["fail", "nvmlNoSuch", "3"], "no function 'nvmlNoSuch'"),
        (["fail", "nvmlDeviceGetName", "77"], "not an NVML error code"),
        (["fail", "cuInit", "UNKNOWN"], "not an error code of the CUDA driver"),
        (["init", "HOT"], "not an NVML error code"),
        (["throttle", "0", "sw-termal"], "did you mean sw-thermal?"),
        (["ecc", "0", "-1"], "-1"),
        (["set", "0", "temperatur_celsius", "4"], "did you mean temperature_celsius?"),
        (["set", "0", "temperature_celsius", "warm"], "not an integer"),
        (["mig", "0", "9g"], "not a MIG layout"),
        (["foreign-process", "0", "2"], "not a memory size"),
        (["foreign-process", "0", "9GiB"], "do not fit"),
        (["foreign-process", "0", "1GiB", "--mig", "3"], "no MIG instance 3"),
    ],
)
def test_a_usage_error_is_one_line(
    fault: Callable[..., Result], machine: SimMachine, arguments: list[str], told: str
) -> None:
    done = fault(*arguments) if arguments else gpuwatch("sim", "fault")
    assert done.code == 2
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert done.err.startswith("gpuwatch: ")
    assert told in done.err
    assert machine.faults() == ()


def test_an_unknown_machine_is_one_line() -> None:
    done = gpuwatch("sim", "fault", "hang", "--name", "no-such")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "'no-such'" in done.err


def test_of_several_machines_one_must_be_named(machine: SimMachine) -> None:
    other = SimMachine.open(SimShape.parse("1x8GiB"), name=f"fault-{uuid.uuid4().hex[:8]}")
    try:
        done = gpuwatch("sim", "fault", "list")
        assert done.code == 2
        assert name_of(machine) in done.err
        assert name_of(other) in done.err
        assert "--name" in done.err
    finally:
        other.remove()


def test_a_fault_of_an_unused_shape_waits_for_its_user(tmp_path: Any) -> None:
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = gpuwatch("--sim", "3x4GiB", "sim", "fault", "mig", "1", "1g,2g", environment=environment)
    assert done.code == 0
    assert "gpuwatch --sim 3x4GiB" in done.err
    told = json.loads(gpuwatch("snapshot", "--sim", "3x4GiB", "--json", environment=environment).out)
    assert [len(device["mig_instances"]) for device in told["devices"]] == [0, 2, 0]
    nobody = gpuwatch("sim", "fault", "list", environment=environment)
    assert nobody.code == 2
    assert "no simulated machine" in nobody.err


def test_injected_faults_are_listed_and_cleared(fault: Callable[..., Result], machine: SimMachine) -> None:
    put = (
        ("hang", "600"),
        ("slow", "0.5"),
        ("lost", "1"),
        ("fail", "nvmlDeviceGetName", "NO_PERMISSION", "--gpu", "0", "--count", "3"),
        ("mismatch", "600"),
        ("throttle", "0", "sw-power-cap,hw-thermal"),
        ("ecc", "0", "3"),
        ("mig", "0", "1g,-,2g"),
        ("remove", "1"),
        ("asleep", "1"),
    )
    for arguments in put:
        done = fault(*arguments)
        assert (done.code, done.out) == (0, ""), done.err
        assert done.err.count("\n") == 1
    listed = fault("list").out.splitlines()
    found = {tuple(line.split("  ")[:2]) for line in listed}
    assert found >= {("hang", "*"), ("slow", "*"), ("lost", "*"), ("fail", "nvmlDeviceGetName"), ("init", "nvmlInit*")}
    assert found >= {("remove", "GPU 1"), ("asleep", "GPU 1"), ("mig", "GPU 0"), ("set", "GPU 0")}
    assert "set  GPU 0  clock_event_reasons 68" in listed
    assert any("LIB_RM_VERSION_MISMATCH" in line and "s left" in line for line in listed)
    assert fault("back", "1").code == 0
    assert {f.device for f in machine.faults() if f.label == "lost"} == set()
    assert fault("clear").code == 0
    assert fault("list").out == ""


def test_faults_show_in_a_snapshot(fault: Callable[..., Result], machine: SimMachine) -> None:
    fault("lost", "1")
    fault("throttle", "0", "sw-power-cap")
    fault("foreign-process", "0", "2GiB")
    fault("set", "0", "remapped_pending", "1")
    first, second = (device for device in seen(machine)["devices"])
    assert second["state"] == "lost"
    assert first["readings"]["clocks.event_reasons"] == "sw-power-cap"
    assert first["readings"]["remapped_rows.pending"] == "yes"
    assert first["readings"]["events.power_seconds"] > 0
    (process,) = seen(machine)["processes"]
    assert process["readings"]["gpu_memory_bytes"] == 2 << 30
    assert process["create_time"] is None
    fault("clear")
    assert [device["state"] for device in seen(machine)["devices"]] == ["ok", "ok"]


def test_a_mismatch_is_named_and_ends(fault: Callable[..., Result], machine: SimMachine) -> None:
    fault("mismatch", "20")
    told = seen(machine)
    assert told["devices"] == []
    assert told["problems"][0]["reason"] == "driver.mismatch"
    fault("clear")
    assert len(seen(machine)["devices"]) == 2


def test_a_program_called_fault_runs_after_dashes(machine: SimMachine, tmp_path: Any) -> None:
    program = tmp_path / "fault"
    program.write_text("#!/bin/sh\necho ran $1 $GPUWATCH_SIM\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = gpuwatch("sim", "--gpus", "1", "--tier", "driver", "--", "fault", "--x", environment=environment)
    assert done.out == "ran --x 1x24GiB\n"


def test_a_machine_is_in_use_as_long_as_a_process_of_it_lives(machine: SimMachine, tmp_path: Any) -> None:
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    code = (
        "import time; from gpuwatch.sim.simulated_machine import SimMachine; "
        "from gpuwatch.sim.machine_shape import SimShape; "
        "m = SimMachine.open(SimShape.parse('2x4GiB')); print('up', flush=True); time.sleep(60)"
    )
    user = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    assert user.stdout is not None
    assert user.stdout.readline() == "up\n"
    assert gpuwatch("sim", "fault", "list", environment=environment).code == 0
    user.kill()
    user.wait()
    wait_for(lambda: gpuwatch("sim", "fault", "list", environment=environment).code == 2)


def test_a_program_that_opens_no_library_of_the_driver_is_on_the_machine_too(tmp_path: Any) -> None:
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    command = ["sim", "--gpus", "3", "--tier", "driver", "--", "sh", "-c", "echo up; exec sleep 60"]
    program = subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", *command], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "up\n"
        done = gpuwatch("sim", "fault", "lost", "1", environment=environment)
        assert done.code == 0
        assert done.err.endswith("lost; to undo this: back 1\n")
        other = gpuwatch("sim", "fault", "--sim", "2x4GiB", "list", environment=environment)
        assert "--sim 2x4GiB; in use now: 3x24GiB" in other.err
    finally:
        program.kill()
        program.communicate()
    after = gpuwatch("sim", "fault", "--sim", "3x24GiB", "clear", environment=environment)
    assert "3x24GiB; none is in use now" in after.err


@pytest.mark.parametrize("most", [64, 1024])
def test_the_program_has_one_open_file_more(machine: SimMachine, tmp_path: Any, most: int) -> None:
    line = f"ulimit -n {most}; exec {sys.executable} -m gpuwatch sim --tier driver -- ls -l /proc/self/fd"
    done = subprocess.run(
        ["sh", "-c", line],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    (held,) = [row for row in done.stdout.splitlines() if row.endswith(".state")]
    assert int(held.split(" -> ")[0].rsplit(" ", 1)[1]) >= min(most // 2, 200)


def test_the_machine_of_another_version_is_left_alone_and_named(tmp_path: Any) -> None:
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    folder = tmp_path / f"gpuwatch-sim-{os.getuid()}"
    folder.mkdir(mode=0o700)
    old = folder / "shared-2x4GiB.v1.4096.state"
    old.write_bytes(b"another layout")
    with old.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        named = gpuwatch("sim", "fault", "lost", "1", environment=environment)
        assert named.code == 2
        assert "unusable from here: 2x4GiB" in named.err
        made = gpuwatch("sim", "fault", "--sim", "2x4GiB", "lost", "1", environment=environment)
        assert made.code == 0
        assert "not in use yet" in made.err
        assert "unusable from here: 2x4GiB" in made.err
    assert old.read_bytes() == b"another layout"
    told = json.loads(gpuwatch("snapshot", "--sim", "2x4GiB", "--json", environment=environment).out)
    assert [device["state"] for device in told["devices"]] == ["ok", "lost"]


def test_unreadable_mig_instances_are_reported(fault: Callable[..., Result], machine: SimMachine) -> None:
    fault("mig", "0", "1g,-,2g")
    environment = machine.environment(os.environ)
    shown = gpuwatch("snapshot", environment=environment).out
    assert "MIG instances" in shown
    assert "1g.1gb" in shown
    assert "2g.2gb" in shown
    rows = gpuwatch("snapshot", "--csv", environment=environment).out.splitlines()
    assert len(rows) == 1 + 2 + 2, "a row for each GPU, and one for each instance behind its GPU's"
    assert [row.rsplit(",", 2)[1:] for row in rows[1:]] == [["", ""], ["7/0", "1g.1gb"], ["3/0", "2g.2gb"], ["", ""]]
    fault("fail", "nvmlDeviceGetMigDeviceHandleByIndex", "NO_PERMISSION")
    told = seen(machine)["devices"][0]
    assert told["mig_instances"] == []
    assert told["missing"]["mig.instances"]["reason"] == "permission_denied"
    shown = gpuwatch("snapshot", environment=environment).out
    assert "Insufficient Permissions" in " ".join(shown.split())


def test_errors_of_nvlinks_sram_and_fabric_are_counted_and_found(
    machine: SimMachine, fault: Callable[..., Result]
) -> None:
    for arguments in (
        ("nvlink", "0", "7", "--kind", "recovery"),
        ("sram", "0", "5", "--threshold"),
        ("fabric", "0", "route-unhealthy,no-partition"),
        ("nvlink", "1", "6", "--kind", "failed-recovery"),
        ("fabric", "1", "not-started"),
    ):
        assert fault(*arguments).code == 0, arguments
    document = seen(machine)
    first, second = (device["readings"] for device in document["devices"])
    assert first["nvlink.recoveries"] == 7
    assert (first["ecc.sram_uncorrected"], first["ecc.sram_threshold_exceeded"]) == (5, "yes")
    assert (first["fabric.state"], first["fabric.health"]) == ("completed", "route-unhealthy+no-partition")
    assert second["nvlink.failed_recoveries"] == 6, "the sum of what four links count"
    assert second["fabric.state"] == "not-started"
    uuids = [device["uuid"] for device in document["devices"]]
    told = [[one["title"] for one in document["findings"] if one["device_uuid"] == uuid] for uuid in uuids]
    assert len(told[0]) == 4, told[0]
    assert any("SRAM errors exceed" in title for title in told[0])
    assert any("route unhealthy" in title for title in told[0])
    assert any("failed NVLink recoveries" in title for title in told[1])
    assert any("the NVLink fabric" in title for title in told[1])
    assert not any(found["id"] == "healthy" for found in document["findings"])
    text = gpuwatch("snapshot", environment=machine.environment(os.environ)).out
    assert "✖ 2 GPUs" in text, "no green line above errors"
    assert "sram_threshold_exceeded 1" in fault("list").out
    assert fault("fabric", "0", "off").code == 0
    assert "fabric.health" in seen(machine)["devices"][0]["missing"]


@pytest.mark.parametrize(("version", "counted"), [(3, 100), (4, 100), (5, None)])
def test_link_errors_are_summed_where_a_generation_has_no_total(
    machine: SimMachine, version: int, counted: int | None
) -> None:
    values = {"nvlink_links": 18, "nvlink_version": version, "nvlink_crc_errors": 100, "nvlink_effective_errors": 41}
    for name, value in values.items():
        machine.override(0, name, value)
    device = seen(machine)["devices"][0]
    assert device["readings"].get("nvlink.crc_errors") == counted
    assert device["readings"].get("nvlink.effective_errors") == (41 if version == 5 else None)
    for metric in ("nvlink.crc_errors", "nvlink.effective_errors"):
        assert (metric in device["missing"]) != (metric in device["readings"])
    assert device["readings"].get("nvlink.recoveries") == 0, "read, and none counted"
