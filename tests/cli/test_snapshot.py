"""``gpuwatch snapshot`` while the driver fails: what is simulated says so, what is unknown is not nought."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from gpuwatch.core.model.nvml_return import NvmlReturn
from gpuwatch.session import snapshots
from gpuwatch.sim import faults
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import Result, gpuwatch

MARK = "[SIMULATED]"


@pytest.fixture
def machine(sim_machine: Callable[[str], SimMachine]) -> SimMachine:
    return sim_machine("2x8GiB")


@pytest.fixture
def snapshot(machine: SimMachine) -> Callable[..., Result]:
    def take(*options: str) -> Result:
        return gpuwatch("snapshot", *options, environment=machine.environment(os.environ))

    return take


def test_a_driver_that_hangs(machine: SimMachine, snapshot: Callable[..., Result]) -> None:
    faults.hang(machine, 60)
    done = snapshot("--deadline", "1")
    assert done.code == 1
    assert done.out.startswith(MARK)
    assert "the driver does not answer" in done.out
    assert "0 GPUs" not in done.out
    assert "gpuwatch sim fault clear" in done.out
    told = json.loads(snapshot("--deadline", "1", "--json").out)
    assert told["simulated"] is True
    assert told["problems"][0]["hint"].endswith("; to wait longer: --deadline")
    host = told["host"]
    assert host["hostname"] == os.uname().nodename
    assert host["cpu_count"] == os.cpu_count()
    assert host["memory_total_bytes"] > host["memory_used_bytes"] > 0
    assert 0 <= host["cpu_percent"] <= 100


def test_only_a_command_with_a_deadline_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "take_samples", lambda *_, **_options: ([], snapshots.Silence()))
    silent, answered = snapshots.take_snapshot(0.5)
    assert not answered
    assert "--deadline" not in silent.problems[0].hint


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("DRIVER_NOT_LOADED", "GPUs unknown: no NVIDIA driver"),
        ("UNKNOWN", "GPUs unknown: the driver reports an error"),
        ("LIB_RM_VERSION_MISMATCH", "GPUs unknown: the driver's library and kernel module differ"),
    ],
)
def test_a_driver_that_does_not_start(
    machine: SimMachine, snapshot: Callable[..., Result], code: str, said: str
) -> None:
    faults.fail_init(machine, NvmlReturn[code], None)
    done = snapshot()
    assert done.code == 1
    assert done.out.startswith(MARK)
    assert said in done.out
    assert "modprobe" not in done.out
    assert "gpuwatch sim fault clear" in done.out
    assert "gpuwatch --sim" not in done.out


def test_no_gpus_where_the_driver_lists_none(machine: SimMachine, snapshot: Callable[..., Result]) -> None:
    for device in (0, 1):
        machine.show_device(device, False)
    done = snapshot()
    assert done.out.startswith(MARK)
    assert done.code == 0, "the driver answered"
    assert "0 GPUs" in done.out
    assert "gpuwatch sim fault add 0" in done.out
    head, table, rows = done.out.partition("Processes of the host")
    assert "gpuwatch sim fault add 0" in head, "what is wrong comes before what the host does beside it"
    assert table
    told = json.loads(snapshot("--json").out)
    assert told["host_processes"] >= len(told["processes"]) > 0
    listed = [line for line in rows.splitlines()[2:] if line.split() and line.split()[0].isdecimal()]
    assert len(listed) == min(told["host_processes"], 10)
    assert "None of them uses a GPU." in rows


def test_with_gpus_the_processes_of_the_host_are_not_counted(snapshot: Callable[..., Result]) -> None:
    assert json.loads(snapshot("--json").out)["host_processes"] is None


def test_a_gpu_that_was_lost_before_anybody_looked(machine: SimMachine, snapshot: Callable[..., Result]) -> None:
    faults.lose(machine, 1)
    device = json.loads(snapshot("--json").out)["devices"][1]
    assert device["state"] == "lost"
    assert device["state_detail"] == "nvmlDeviceGetHandleByIndex: GPU is lost"
    assert {lack["reason"] for lack in device["missing"].values()} == {"device_lost"}
    done = snapshot()
    assert done.code == 0, "the driver answered"
    text = done.out
    assert "Invalid Argument" not in text
    assert "unknown-1" not in text
    assert "NVML only knows its position" in text


def test_every_prints_a_sample_a_line_also_while_the_driver_hangs(machine: SimMachine) -> None:
    command = [sys.executable, "-m", "gpuwatch", "snapshot", "--json", "--every", "0.5s"]
    environment = machine.environment(os.environ)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        lines = map(json.loads, process.stdout)
        first, second = next(lines), next(lines)
        assert first["schema"] == "gpuwatch.snapshot/1"
        assert len(second["devices"]) == 2
        assert first["taken_at"] < second["taken_at"]
        faults.hang(machine, 30)
        silent = next(line for line in lines if not line["devices"])
        assert silent["problems"][0]["source"] == "collector"
        assert silent["problems"][0]["detail"].startswith("no answer from the driver")
        assert silent["host"]["memory_total_bytes"] > 0
        process.stdout.close()
        assert process.wait(15) == 141, "nobody reads: as any program in a pipe"
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize("options", [(), ("--csv",), ("--json", "--topology"), ("--json", "-o", "x.json")])
def test_every_is_for_lines_of_json(options: tuple[str, ...]) -> None:
    done = gpuwatch("snapshot", "--every", "5s", *options)
    assert done.code == 2
    assert "--json --every 5s" in done.err
