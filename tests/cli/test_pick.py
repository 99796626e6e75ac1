"""``gpuwatch pick`` as users run it: on simulated GPUs, with reservations of several at once."""

from __future__ import annotations

import errno
import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gpuwatch.cli.pick import _pick_until
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.machine.sources.gpu_reservations import reservation_holders, reservations, reserve
from gpuwatch.session.free_gpus import Requirements
from gpuwatch.sim.environment import ENV_STATE
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import gpuwatch
from tests.forked import start_gpuwatch
from tests.ui import machines
from tests.waiting import remains

Machine = Callable[[str], SimMachine]
SHOW = "import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); sys.stdin.read()"


@contextmanager
def running(environment: dict[str, str], *arguments: str, count: int = 1) -> Iterator[list[subprocess.Popen[str]]]:
    """Commands on GPUs that they reserved, until their stdin ends."""
    words = ["pick", "--reserve", *arguments, "--", sys.executable, "-c", SHOW]
    started = [
        start_gpuwatch(
            *words,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(count)
    ]
    try:
        yield started
    finally:
        for one in started:
            one.kill()
            one.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_uuids_of_free_gpus(sim_machine: Machine) -> None:
    machine = sim_machine("3x24GiB")
    environment = machine.environment(os.environ)
    done = gpuwatch("pick", "-n", "2", "--free", "20GiB", environment=environment)
    assert done.code == 0
    assert done.err == ""
    assert [len(uuid) for uuid in done.out.strip().split(",")] == [40, 40]
    assert gpuwatch("pick", "--index", environment=environment | {"CUDA_VISIBLE_DEVICES": "2"}).out == "2\n"
    document = json.loads(gpuwatch("pick", "-n", "2", "--json", environment=environment).out)
    assert document["schema"] == "gpuwatch.pick/1"
    assert [one["index"] for one in document["chosen"]] == [0, 1]
    assert document["spare"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("-n", "3"), 1, "gpuwatch: this machine has 2 GPUs, not 3\n"),
        (("--free", "30GiB", "--wait", "1h"), 1, "gpuwatch: no GPU here has 30.0 GiB; the largest has 24.0 GiB\n"),
        (("--reserve",), 2, "gpuwatch: --reserve needs a command, which holds the reservation"),
        (("--json", "--", "true"), 2, "gpuwatch: --json cannot be combined with a command"),
        (("--", "no-such-program"), 127, "gpuwatch: no-such-program: command not found"),
        (("-n", "0"), 2, "gpuwatch: Invalid value for '-n'"),
        (("--free", "much"), 2, "gpuwatch: Invalid value for '--free'"),
    ],
)
def test_what_cannot_be(sim_machine: Machine, arguments: tuple[str, ...], code: int, error: str) -> None:
    done = gpuwatch("pick", *arguments, environment=sim_machine("2x24GiB").environment(os.environ))
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith(error)
    assert done.err.count("\n") == 1


def test_two_at_once_never_get_the_same_gpu(sim_machine: Machine) -> None:
    environment = sim_machine("4x24GiB").environment(os.environ)
    with running(environment, "-n", "1", count=4) as started:
        taken = [line(one) for one in started]
        assert len(set(taken)) == 4
        assert "" not in taken
        full = gpuwatch("pick", environment=environment)
        assert (full.code, full.out) == (1, "")
        for one in started:
            assert f"reserved by pid {one.pid} (" in full.err
        # However it ends, its GPU is free again.
        started[2].send_signal(signal.SIGKILL)
        started[2].wait()
        assert gpuwatch("pick", environment=environment).out.strip() == taken[2]


RACE = """
import os, sys
from gpuwatch.session.free_gpus import Requirements, pick_gpus
from gpuwatch.machine.sources.gpu_reservations import reserve, reservation_holders
from gpuwatch.session.snapshots import take_snapshot
machine, _ = take_snapshot(30.0)
print("ready", flush=True)
for number in sys.stdin:
    held = None
    while held is None:
        picked = pick_gpus(machine, Requirements(int(number)), {}, reservation_holders())
        if not picked.chosen:
            break
        held = reserve([one.uuid for one in picked.chosen])
    print(*(one.index for one in picked.chosen), flush=True)
    sys.stdin.readline()
    if held is not None:
        held.release()
    print("released", flush=True)
"""


def test_eight_at_once_never_share_a_gpu_in_ten_rounds(sim_machine: Machine) -> None:
    """All choose at the same moment, from the same snapshot, one or two GPUs each of the eight."""
    environment = sim_machine("8x24GiB").environment(os.environ)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RACE], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(8)
    ]

    def tell(text: str) -> None:
        for one in started:
            assert one.stdin is not None
            one.stdin.write(f"{text}\n")
            one.stdin.flush()

    try:
        assert [line(one) for one in started] == ["ready"] * 8
        for round_number in range(10):
            wanted = 1 + round_number % 2
            tell(str(wanted))
            held = [line(one).split() for one in started]
            taken = [index for indices in held for index in indices]
            assert len(set(taken)) == len(taken), "nobody shares"
            assert {len(indices) for indices in held} <= {0, wanted}, "all or nothing"
            # Of two, one may be taken for a moment by somebody who does not get the other.
            assert len(taken) == 8 if wanted == 1 else taken, "and none is left while somebody wants it"
            tell("release")
            assert [line(one) for one in started] == ["released"] * 8
    finally:
        for one in started:
            one.kill()
            one.communicate()


def test_gpus_that_are_connected_well_go_together(sim_machine: Machine) -> None:
    machine = sim_machine("4x24GiB")
    for index, node in enumerate((0, 1, 0, 1)):
        machine.override(index, "numa_node", node)
    environment = machine.environment(os.environ)
    document = json.loads(gpuwatch("pick", "-n", "2", "--json", environment=environment).out)
    assert [one["index"] for one in document["chosen"]] == [0, 2]
    assert document["connection"] == "PHB"
    done = gpuwatch("pick", "-n", "3", "--index", "--", "true", environment=environment)
    assert ": SYS, between NUMA nodes" in done.err.splitlines()[-1]


def test_a_snapshot_tells_who_reserved(sim_machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = sim_machine("2x24GiB").environment(os.environ)
    token = "hf_" + "kTqZbWvYxRmNcLpDsFgHjKaSdQwErTyUiO"
    command = ["sh", "-c", "echo ready; read x; exit 0", f"--token={token}"]
    holder = subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "pick", "--reserve", "--", *command],
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert line(holder) == "ready"
        document = json.loads(gpuwatch("snapshot", "--json", environment=environment).out)
        (found,) = document["reservations"]
        assert found["uuid"] == document["devices"][0]["uuid"]
        assert (found["pid"], found["user"]) == (holder.pid, pwd.getpwuid(os.getuid()).pw_name)
        assert "sh -c" in found["command"]
        with monkeypatch.context() as patch:
            patch.setenv(ENV_STATE, environment[ENV_STATE])
            assert [one.pid for one in reservations()] == [holder.pid]
            assert token not in str(reservations()), "recordings keep snapshots as they come"
        text = gpuwatch("snapshot", environment=environment).out
        row = next(one for one in text.split("Reserved")[1].splitlines() if str(holder.pid) in one)
        assert row.split()[0] == "0"
        assert token not in text + json.dumps(document)
    finally:
        holder.kill()
        holder.communicate()
    document = json.loads(gpuwatch("snapshot", "--json", environment=environment).out)
    assert document["reservations"] == []


def test_it_waits_for_a_gpu(sim_machine: Machine) -> None:
    environment = sim_machine("1x24GiB").environment(os.environ)
    with running(environment) as [first]:
        assert line(first)
        early = gpuwatch("pick", "--wait", "0.5", environment=environment)
        assert early.code == 1
        with running(environment, "--wait", "1min") as [second]:
            remains(lambda: second.poll() is None, 2)
            first.terminate()
            assert line(second).startswith("GPU-")


def test_the_command_replaces_gpuwatch(sim_machine: Machine) -> None:
    environment = sim_machine("1x24GiB").environment(os.environ)
    done = gpuwatch("pick", "--index", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER; exit 7")
    assert done.code == 1, "no driver here"
    done = gpuwatch(
        "pick",
        "--index",
        "--",
        "sh",
        "-c",
        "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER; exit 7",
        environment=environment,
    )
    assert (done.code, done.out) == (7, "0 PCI_BUS_ID\n")
    assert done.err == "gpuwatch: GPU 0 (Simulated GPU 24GiB, 23.8 GiB free)\n"


def test_all_or_nothing() -> None:
    first = reserve(["GPU-b"])
    assert first is not None
    assert reserve(["GPU-c", "GPU-b", "GPU-a"]) is None
    assert set(reservation_holders()) >= {"GPU-b"}
    assert not {"GPU-a", "GPU-c"} & set(reservation_holders()), "what it had already is released"
    first.release()
    assert "GPU-b" not in reservation_holders()
    again = reserve(["GPU-b"])
    assert again is not None
    again.release()


def test_sockets_that_fail_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))

    monkeypatch.setattr("gpuwatch.cli.pick.reserve", refused)
    monkeypatch.setattr(
        "gpuwatch.cli.pick.take_snapshot", lambda *_, **_options: (machines.snapshot((machines.device(0),), ()), True)
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(GpuwatchError, match="--reserve needs Unix sockets, which fail here: Address family"):
        _pick_until(Requirements(), 1.0, 0.0, reserve_gpus=True)
