"""``--on ray`` on four nodes of a real Ray cluster, all on this machine. Marked: it takes a minute and 1.4 GiB."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gpuwatch.core.model.comparison import Comparison
from gpuwatch.core.model.json_codec import from_json
from tests.cluster.nodes import comparison, is_program, running, wait_for_none
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed here (pip install ray)"),
    pytest.mark.timeout(400),
]

CLUSTER = """
import sys
from ray.cluster_utils import Cluster
small = dict(num_cpus=1, node_ip_address="127.0.0.1", object_store_memory=80 << 20)
cluster = Cluster(initialize_head=True, head_node_args=dict(small, include_dashboard=False))
nodes = [cluster.add_node(**small) for _ in range(3)]
cluster.wait_for_nodes(timeout=90)
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(nodes.pop(), allow_graceful=False)
    print("removed", flush=True)
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a cluster; a line to its process takes a node away."""
    # Ray replaces 127.0.0.1 by another address of the machine, where this cluster does not listen, unless this is set.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = ""
        while ":" not in address or " " in address:
            line = process.stdout.readline()
            assert line, "Ray did not start"
            address = line.strip()
        yield address, process
        process.stdin.close()
        process.wait(60)
    del os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"]


def command(address: str, *arguments: str) -> list[str]:
    name, *rest = arguments
    on = ("--json", "--on", f"ray:{address}", "--remote-command", f"{sys.executable} -m gpuwatch")
    return [sys.executable, "-m", "gpuwatch", name, *on, *rest]


def gpuwatch(address: str, *arguments: str) -> tuple[int, Comparison]:
    done = subprocess.run(command(address, *arguments), capture_output=True, text=True, timeout=200)
    return comparison(done)


def test_a_snapshot_of_each_node(cluster: tuple[str, subprocess.Popen[str]]) -> None:
    code, document = gpuwatch(cluster[0], "snapshot", "--sim", "2x1GiB")
    assert [(node.state, node.reason) for node in document.nodes] == [("ok", "")] * 4
    assert len({node.node for node in document.nodes}) == 4
    assert [len(node.snapshot.devices) for node in document.nodes if node.snapshot is not None] == [2] * 4
    assert code == 0


def test_no_gpuwatch_there(cluster: tuple[str, subprocess.Popen[str]]) -> None:
    code, document = gpuwatch(cluster[0], "snapshot", "--remote-command", "gpuwatch-that-is-not-there")
    assert {(node.state, node.reason) for node in document.nodes} == {
        ("no-answer", "gpuwatch was not found there (give its path with --remote-command)")
    }
    assert code == 1


def test_a_node_that_is_too_slow(cluster: tuple[str, subprocess.Popen[str]]) -> None:
    _, document = gpuwatch(
        cluster[0], "try", "--sim", "1x1GiB", "--config", "default", "--node-timeout", "12s", "--", "sleep", "1234.21"
    )
    assert {(node.state, node.reason) for node in document.nodes} == {("timed-out", "not finished after 12 s")}
    wait_for_none("1234.21", 20)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_there(cluster: tuple[str, subprocess.Popen[str]], number: signal.Signals) -> None:
    mark = f"1234.3{int(number)}"
    started = command(cluster[0], "try", "--sim", "1x1GiB", "--config", "default", "--", "sleep", mark)
    with subprocess.Popen(started, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: sum(is_program(pid, mark) for pid in running(mark)) >= 4, seconds=90, pause=0.2)
        process.send_signal(number)
        process.wait(60)
    wait_for_none(mark, 60)


def test_a_node_that_is_lost_is_named(cluster: tuple[str, subprocess.Popen[str]]) -> None:
    address, process = cluster
    assert process.stdin is not None
    assert process.stdout is not None
    mark = "1234.41"
    started = command(address, "try", "--sim", "1x1GiB", "--config", "default", "--node-timeout", "60s", "--")
    with subprocess.Popen([*started, "sleep", mark], stdout=subprocess.PIPE, text=True) as run:
        wait_for(lambda: sum(is_program(pid, mark) for pid in running(mark)) >= 4, seconds=90, pause=0.2)
        process.stdin.write("remove\n")
        process.stdin.flush()
        assert process.stdout.readline() == "removed\n"
        assert run.stdout is not None
        document = from_json(run.stdout.read().encode())
    assert isinstance(document, Comparison)
    states = sorted((node.state, node.reason) for node in document.nodes)
    assert states[0] == ("failed", "Ray lost this node"), states
    assert [state for state, _ in states[1:]] == ["timed-out"] * 3
    _, document = gpuwatch(address, "snapshot", "--sim", "1x1GiB")
    assert sorted(node.reason for node in document.nodes) == ["", "", "", "Ray lists it as dead"]
    wait_for_none(mark, 60)


def test_no_cluster_is_one_line() -> None:
    done = subprocess.run(command("127.0.0.1:1", "snapshot"), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr == "gpuwatch: no Ray cluster at 127.0.0.1:1: Connection refused\n"
