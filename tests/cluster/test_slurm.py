"""``--on slurm`` on three nodes of a real Slurm, all on this machine. Marked: it starts daemons, for half a minute."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest

from gpuwatch.core.model.comparison import Comparison, Node
from gpuwatch.core.model.json_codec import from_json
from tests.cluster.nodes import comparison, is_program, running, wait_for_none
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(
        not all(map(shutil.which, ("slurmctld", "slurmd", "srun", "sinfo"))) or os.geteuid() != 0,
        reason="needs root and Slurm (apt install slurm-wlm)",
    ),
    pytest.mark.timeout(300),
]

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
KillWait=5
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1
NodeName=n3 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[3]} CPUs=1
NodeName=n4 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[4]} CPUs=1 State=DOWN
PartitionName=gpu Nodes=n1,n2,n3 Default=YES MaxTime=INFINITE State=UP
PartitionName=broken Nodes=n3,n4 MaxTime=INFINITE State=UP
"""


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables with which Slurm's programs find it."""
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "state").mkdir()
    host = socket.gethostname().partition(".")[0]
    (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder, host=host, ports=free_ports(5)))
    (folder / "bin").mkdir()
    (folder / "bin/gpuwatch").write_text(f'#!/bin/sh\nexec {sys.executable} -m gpuwatch "$@"\n')
    (folder / "bin/gpuwatch").chmod(0o755)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SLURM")},
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
    }
    commands = [["slurmctld", "-D"], *(["slurmd", "-D", "-N", name] for name in ("n1", "n2", "n3"))]
    daemons = [
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in commands
    ]
    try:
        states = ["sinfo", "-h", "-N", "-p", "gpu", "-o", "%t"]
        wait_for(
            lambda: output(states, environment).split() == ["idle"] * 3,
            lambda: f"three idle nodes: {(folder / 'slurmctld.log').read_text()[-2000:]}",
            pause=0.2,
        )
        yield environment
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def output(command: Sequence[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30).stdout


def gpuwatch(environment: dict[str, str], *arguments: str) -> tuple[int, Comparison]:
    done = subprocess.run(
        [sys.executable, "-m", "gpuwatch", *arguments, "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    return comparison(done)


def rows(nodes: Sequence[Node]) -> dict[str, tuple[str, str]]:
    return {node.node: (node.state, node.reason) for node in nodes}


def test_all_nodes_of_the_cluster_and_one_that_is_down(slurm: dict[str, str]) -> None:
    code, document = gpuwatch(slurm, "snapshot", "--sim", "2x1GiB", "--on", "slurm")
    found = rows(document.nodes)
    assert {name: found[name] for name in ("n1", "n2", "n3")} == dict.fromkeys(("n1", "n2", "n3"), ("ok", ""))
    assert found["n4"][0] == "no-answer"
    assert "down" in found["n4"][1]
    assert code == 1


def test_the_nodes_of_a_partition(slurm: dict[str, str]) -> None:
    code, document = gpuwatch(slurm, "snapshot", "--sim", "2x1GiB", "--on", "slurm:gpu")
    assert (code, list(rows(document.nodes))) == (0, ["n1", "n2", "n3"])
    assert [len(node.snapshot.devices) for node in document.nodes if node.snapshot is not None] == [2, 2, 2]


def test_a_bad_node_is_a_row_and_the_others_finish(slurm: dict[str, str]) -> None:
    there = "sh -c 'test $SLURMD_NODENAME != n1 || exit 7; exec gpuwatch \"$@\"' sh"
    code, document = gpuwatch(slurm, "snapshot", "--sim", "1x1GiB", "--on", "slurm:gpu", "--remote-command", there)
    assert code == 1
    assert rows(document.nodes) == {"n1": ("no-answer", "exit code 7"), "n2": ("ok", ""), "n3": ("ok", "")}


def test_no_gpuwatch_there(slurm: dict[str, str]) -> None:
    _, document = gpuwatch(slurm, "snapshot", "--on", "slurm:gpu", "--remote-command", "gpuwatch-that-is-not-there")
    assert {state for state, _ in rows(document.nodes).values()} == {"no-answer"}
    assert {reason for _, reason in rows(document.nodes).values()} == {
        "gpuwatch was not found there (give its path with --remote-command)"
    }


def test_inside_a_job_its_nodes_are_used(slurm: dict[str, str]) -> None:
    command = ["salloc", "-N2", "-w", "n2,n3", "-p", "gpu", sys.executable, "-m", "gpuwatch", "snapshot"]
    done = subprocess.run(
        [*command, "--sim", "1x1GiB", "--on", "slurm", "--json"], env=slurm, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert list(rows(json_nodes(done.stdout))) == ["n2", "n3"]


def json_nodes(text: str) -> Sequence[Node]:
    document = from_json(text.encode())
    assert isinstance(document, Comparison)
    return document.nodes


def test_a_busy_node_is_queued_and_given_up(slurm: dict[str, str]) -> None:
    with subprocess.Popen(["srun", "-N1", "-w", "n1", "-p", "gpu", "sleep", "1234.71"], env=slurm) as busy:
        try:
            wait_for(lambda: output(["squeue", "-h", "-t", "R", "-o", "%N"], slurm).strip() == "n1", pause=0.2)
            options = ("--on", "slurm:gpu", "--node-timeout", "12s")
            code, document = gpuwatch(slurm, "snapshot", "--sim", "1x1GiB", *options)
        finally:
            busy.send_signal(signal.SIGTERM)
    assert code == 1
    assert rows(document.nodes)["n1"] == ("timed-out", "still queued after 12 s")
    assert rows(document.nodes)["n2"] == ("ok", "")
    wait_for_none("1234.71", 20)


def test_an_unknown_partition_is_one_line(slurm: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpuwatch", "snapshot", "--on", "slurm:nix"], env=slurm, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "nix" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_in_slurm(slurm: dict[str, str], number: signal.Signals) -> None:
    mark = f"1234.8{int(number)}"
    command = [sys.executable, "-m", "gpuwatch", "try", "--sim", "1x1GiB", "--config", "default", "--on", "slurm:gpu"]
    with subprocess.Popen(
        [*command, "--", "sleep", mark], env=slurm, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        wait_for(lambda: sum(is_program(pid, mark) for pid in running(mark)) >= 3, "it runs on three nodes", pause=0.2)
        process.send_signal(number)
        process.wait(60)
    wait_for_none(mark, 40)
    wait_for(lambda: output(["squeue", "-h"], slurm).strip() == "", "an empty queue", pause=0.2)


def test_json_is_json(slurm: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpuwatch", "doctor", "--sim", "1x1GiB", "--on", "slurm:gpu", "--json"],
        env=slurm,
        capture_output=True,
        text=True,
    )
    assert {node["node"] for node in json.loads(done.stdout)["nodes"] if node["doctor"]} == {"n1", "n2", "n3"}


def test_the_reason_of_a_drained_node(slurm: dict[str, str]) -> None:
    subprocess.run(
        ["scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=GPU fell off the bus"], env=slurm, check=True
    )
    try:
        _, document = gpuwatch(slurm, "snapshot", "--sim", "1x1GiB", "--on", "slurm:gpu")
    finally:
        subprocess.run(["scontrol", "update", "NodeName=n3", "State=RESUME"], env=slurm, check=True)
    assert rows(document.nodes)["n3"][1].endswith(": GPU fell off the bus")
    assert rows(document.nodes)["n1"] == ("ok", "")
