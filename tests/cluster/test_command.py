"""``--on``: the same command on every node, by local processes and by an ``ssh`` that is none."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import pytest
from msgspec.structs import replace

from gpuwatch import __version__
from gpuwatch.cli.probe import probe
from gpuwatch.cli.run_on_nodes import node_arguments
from gpuwatch.cli.snapshot import snapshot
from gpuwatch.cli.try_command import experiment
from gpuwatch.core.model.comparison import Comparison, Node, OddFact
from gpuwatch.core.model.json_codec import from_json, to_json
from gpuwatch.core.model.snapshot import Driver
from gpuwatch.fleet.cluster.node_agent import PROGRESS_MARK, PROGRESS_VARIABLE
from gpuwatch.share.reports.report_formats import write
from gpuwatch.share.reports.runs_side_by_side import compare
from tests.cluster.nodes import wait_for_none
from tests.cluster.test_odd_nodes import run
from tests.every import every
from tests.reports.documents import HOSTILE, full_snapshot, hostile_run
from tests.waiting import wait_for

SSH = """#!/bin/sh
# An ssh that runs the command here, or fails as a host may.
while [ "$1" != -- ]; do shift; done
host=$2
case $host in
  refused) echo "ssh: connect to host refused port 22: Connection refused" >&2; exit 255;;
  unknown) echo "Host key verification failed." >&2; exit 255;;
  banner) echo "Welcome to banner"; echo "You have mail" >&2;;
  none) echo "sh: 1: gpuwatch: not found" >&2; exit 127;;
  seven) exit 7;;
  done) sh -c "$3"; code=$?; touch "$(dirname "$0")/done"; exit $code;;
  hangs) sleep 1234.01; exit 0;;
  garbage) head -c 9999999 /dev/zero; exit 0;;
esac
exec sh -c "$3"
"""


def gpuwatch(*arguments: str, path: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    if path is not None:
        environment["PATH"] = f"{path}:{environment['PATH']}"
    return subprocess.run(
        [sys.executable, "-m", "gpuwatch", *arguments], capture_output=True, text=True, timeout=120, env=environment
    )


@pytest.fixture
def ssh(tmp_path: Path) -> Path:
    """A folder with ``ssh`` and ``gpuwatch``."""
    for name, text in (("ssh", SSH), ("gpuwatch", f'#!/bin/sh\nexec {sys.executable} -m gpuwatch "$@"\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def document(done: subprocess.CompletedProcess[str]) -> Comparison:
    found = from_json(done.stdout.encode())
    assert isinstance(found, Comparison)
    return found


def test_snapshots_of_two_local_nodes() -> None:
    done = gpuwatch("snapshot", "--sim", "2x1GiB", "--on", "local:2", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    nodes = document(done).nodes
    assert [(node.node, node.state, node.gpuwatch_version) for node in nodes] == [
        ("local1", "ok", __version__),
        ("local2", "ok", __version__),
    ]
    assert [len(node.snapshot.devices) for node in nodes if node.snapshot is not None] == [2, 2]


def test_as_text_and_csv() -> None:
    done = gpuwatch("--sim", "2x1GiB", "snapshot", "--on", "local:1", "--csv")
    heads, *rows = done.stdout.splitlines()
    assert heads.startswith("node,node_state,node_reason,taken_at,index,uuid,")
    assert [row.split(",")[0] for row in rows] == ["local1", "local1"]
    text = gpuwatch("snapshot", "--sim", "2x1GiB", "--on", "local:1").stdout
    assert "[SIMULATED]" in text
    assert "local1  ●\u00a0answered" in text
    assert "2 × Simulated GPU 1GiB" in text


def test_each_host_that_fails_is_a_row_with_its_reason(ssh: Path) -> None:
    hosts = "good,refused,unknown,banner,none,seven,garbage"
    done = gpuwatch("snapshot", "--sim", "1x1GiB", "--on", f"ssh:{hosts}", "--json", path=ssh)
    assert done.returncode == 1
    rows = {node.node: (node.state, node.reason) for node in document(done).nodes}
    assert rows == {
        "good": ("ok", ""),
        "refused": ("no-answer", "refuses ssh connections"),
        "unknown": ("no-answer", "its host key is not known: log in once manually"),
        "banner": ("ok", ""),
        "none": ("no-answer", "gpuwatch was not found there (give its path with --remote-command)"),
        "seven": ("no-answer", "exit code 7"),
        "garbage": ("failed", "prints more than 4 MiB of other output"),
    }
    text = gpuwatch("snapshot", "--sim", "1x1GiB", "--on", "ssh:good,seven", path=ssh).stdout
    assert text.splitlines()[1].startswith("seven: exit code 7")


def test_arguments_arrive_over_ssh_as_they_were_given(ssh: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    hostile = ["a b", "$HOME", "'", '"', "`id`", "--on", "-o", "", "*", "a\nb"]
    writer = tmp_path / "gpuwatch"
    writer.write_text(f'#!/bin/sh\nfor one in "$@"; do printf "%s\\0" "$one"; done > {out}\nexit 7\n')
    done = gpuwatch("try", "--on", "ssh:a", "--json", "--config", "default", "--", "echo", *hostile, path=ssh)
    assert done.returncode == 1
    words = out.read_bytes().decode().split("\0")[:-1]
    assert words == ["node", "--", "try", "--json", "--config=default", "--no-save", "--", "echo", *hostile]


def test_remote_command(ssh: Path, tmp_path: Path) -> None:
    (tmp_path / "gpuwatch").unlink()
    there = f"env A='b c' {sys.executable} -m gpuwatch"
    done = gpuwatch(
        *("snapshot", "--sim", "1x1GiB", "--on", "ssh:a", "--json", "--remote-command", there, "-o", "-"), path=ssh
    )
    assert done.returncode == 0, done.stderr
    assert document(done).nodes[0].state == "ok"


@every(
    [
        (("snapshot", "--on", "shs:a"), "no launcher 'shs'; did you mean ssh?"),
        (("snapshot", "--on", ""), "no launcher ''"),
        (("snapshot", "--on", "local:0"), "give a number from 1 to 64"),
        (("snapshot", "--on", "local:x"), "give a number from 1 to 64"),
        (("snapshot", "--on", "ssh:"), "the list of hosts is empty"),
        (("snapshot", "--on", "ssh:-oProxyCommand=id"), "is not a host"),
        (("snapshot", "--on", "slurm:a b"), "not the name of a partition"),
        (("snapshot", "--on", "ray:-x"), "not an address"),
        (("snapshot", "--on", "ray:ray://a:10001"), "Ray Client is not supported"),
        (("snapshot", "--on", "local:2", "--topology"), "--topology and --on cannot be combined"),
        (("probe", "--on", "local:2", "--list"), "--list and --on cannot be combined"),
        (("report", "x.json", "--on", "local:2"), "--on applies only to reports of machines"),
        (("doctor", "--node-timeout", "5s"), "--node-timeout applies only to --on"),
        (("doctor", "--remote-command", "x"), "--remote-command applies only to --on"),
        (("doctor", "--on", "local:2", "--remote-command", "'"), "no closing quotation"),
        (("doctor", "--on", "local:2", "--launcher-options", "-v"), "--launcher-options applies only to ssh and slurm"),
        (("node",), "gpuwatch node is started by --on"),
        (("node", "--", "record"), "gpuwatch node is started by --on"),
    ]
)
def test_wrong_usage_is_one_line(options: tuple[str, ...], message: str) -> None:
    done = gpuwatch(*options)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_slurm_without_slurm_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpuwatch", "snapshot", "--on", "slurm"],
        **{"capture_output": True, "text": True, "env": {"PATH": str(tmp_path)}},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gpuwatch: sinfo is not ")


def rebuilt(command: click.Command, *given: str) -> list[str]:
    context = command.make_context(command.name, list(given), resilient_parsing=False)
    return node_arguments(context)


@pytest.mark.parametrize(
    ("command", "given", "expected"),
    [
        (snapshot, ["--on=local:2", "--deadline", "5", "-o", "x.html", "--redact"], ["--json", "--deadline=5"]),
        (snapshot, ["--on", "local:2", "--no-gpm", "--sim=2x1GiB@me"], ["--json", "--no-gpm", "--sim=2x1GiB@me"]),
        (
            probe,
            ["--config", "a b", "--fresh", "--config=-c", "--on", "ssh:a", "-ox.txt", "--no-save", "--node-timeout=5s"],
            ["--json", "--config=a b", "--fresh", "--config=-c", "--no-save"],
        ),
        (
            experiment,
            ["--on", "ssh:a", "--launcher-options", "-v", "python", "-o", "t.py", "--on", "x"],
            ["--json", "--no-save", "--", "python", "-o", "t.py", "--on", "x"],
        ),
    ],
)
def test_what_a_node_is_asked(command: click.Command, given: list[str], expected: list[str]) -> None:
    assert rebuilt(command, *given) == expected


def test_a_node_is_not_listed() -> None:
    done = gpuwatch("--help")
    assert " node " not in done.stdout
    assert "'node'" not in gpuwatch("nod").stderr


def test_node_timeout() -> None:
    done = gpuwatch(
        "snapshot", "--on", "local:1", "--json", "--node-timeout", "1s", "--remote-command", "sleep 1234.7 #"
    )
    rows: list[dict[str, Any]] = json.loads(done.stdout)["nodes"]
    assert done.returncode == 1
    assert (rows[0]["state"], rows[0]["snapshot"]) in [("timed-out", None), ("no-answer", None)]


def test_saved_runs_of_many_machines_name_the_odd_one(tmp_path: Path) -> None:
    for number in range(8):
        one = replace(run(number, 0.03 if number == 5 else 0.01, gpus=7 if number == 2 else 8), node=None)
        (tmp_path / f"n{number}.json").write_text(to_json(one))
    files = sorted(str(path) for path in tmp_path.glob("*.json"))
    found = document(gpuwatch("compare", "--json", *files))
    assert {(fact.node, fact.what) for fact in found.odd} == {("n2", "number of GPUs"), ("n5", "speed of default")}
    assert [run.node for run in found.runs] == [f"n{number}" for number in range(8)]
    (tmp_path / "all.json").write_text(to_json(found))
    assert document(gpuwatch("compare", "--json", str(tmp_path / "all.json"))).odd == found.odd
    text = " ".join(gpuwatch("compare", *files).stdout.split())
    assert text.startswith("n2 is odd: 7 GPUs instead of 8; n5 is odd: 3.0 times slower (default)")
    redacted = gpuwatch("compare", "--redact", *files).stdout
    assert "n2" not in redacted
    assert "host-3" in redacted


@pytest.mark.parametrize(("count", "more"), [(4, "1 more is odd"), (5, "2 more are odd")])
def test_more_odd_nodes_than_are_named(tmp_path: Path, count: int, more: str) -> None:
    for number in range(16):
        one = replace(run(number, gpus=7 if number < count else 8), node=None)
        (tmp_path / f"n{number:02}.json").write_text(to_json(one))
    text = " ".join(gpuwatch("compare", *map(str, tmp_path.glob("*.json"))).stdout.split())
    assert f"; {more}" in text


def test_saved_snapshots_are_compared(tmp_path: Path) -> None:
    for number in range(4):
        one = full_snapshot()
        host = replace(one.host, hostname=f"m{number}")
        driver = Driver(version="1.2" if number == 3 else "1.1", cuda_version=None, nvml_version=None)
        (tmp_path / f"{number}.json").write_text(to_json(replace(one, host=host, driver=driver)))
    files = sorted(map(str, tmp_path.glob("*.json")))
    done = gpuwatch("compare", *files)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].startswith("m3 is odd: driver 1.2 instead of 1.1")
    alone = gpuwatch("compare", files[0])
    assert (alone.returncode, len(alone.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize("suffix", ["html", "md", "txt", "csv", "json"])
def test_hostile_nodes_in_every_format(tmp_path: Path, suffix: str) -> None:
    hostile = replace(hostile_run(), node=HOSTILE)
    nodes = (Node(node=HOSTILE, state="failed", reason=HOSTILE, host=HOSTILE, answer=HOSTILE),)
    fact = {"node": HOSTILE, "what": HOSTILE, "value": HOSTILE, "usual": HOSTILE, "detail": HOSTILE}
    odd = (OddFact(kind="structure", siblings=3, **fact), OddFact(kind="speed", siblings=3, **fact))
    one = replace(compare([hostile]), nodes=nodes, odd=odd, odd_notes=(HOSTILE,))
    for redact in (False, True):
        path = tmp_path / f"a.{suffix}"
        write(one, path, redact=redact)
        text = path.read_text()
        assert "\x1b" not in text
        assert "\u202e" not in text
        if suffix == "html":
            assert "<script>alert" not in text


def test_what_came_home_before_ctrl_c_is_printed(ssh: Path) -> None:
    command = [sys.executable, "-m", "gpuwatch", "snapshot", "--sim", "1x1GiB", "--on", "ssh:done,hangs", "--json"]
    environment = {**os.environ, "PATH": f"{ssh}:{os.environ['PATH']}"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for((ssh / "done").exists, "the first node's answer")
        time.sleep(0.5)  # it is read
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    rows = {node["node"]: node["state"] for node in json.loads(output)["nodes"]}
    assert rows == {"done": "ok", "hangs": "interrupted"}
    assert errors == "gpuwatch: interrupted; 1 of 2 nodes had answered\n"
    wait_for_none("1234.01", 10)


def test_progress_of_nodes_is_shown_on_a_terminal() -> None:
    """A line for each node that is done, and what the others do, while stdout stays a document."""
    command = [sys.executable, "-m", "gpuwatch", "snapshot", "--sim", "1x1GiB", "--on", "local:2", "--json"]
    main, terminal = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal, text=True) as process:
        os.close(terminal)
        assert process.stdout is not None
        assert len(json.loads(process.stdout.read())["nodes"]) == 2
    seen = b""
    with suppress(OSError):
        while data := os.read(main, 4096):
            seen += data
    os.close(main)
    shown = seen.decode()
    assert re.search(r"local1  (?:starting|running)", shown), "what it does, before it answers"
    assert "● local1  answered" in shown
    assert "● local2  answered" in shown


def test_progress_is_passed_on_as_lines() -> None:
    code = "from gpuwatch.cli.progress import progress; import os; progress('half'); progress('')"
    code += "; print(os.environ.get('GPUWATCH_PROGRESS_LINES'))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, PROGRESS_VARIABLE: "1"}
    )
    assert done.stderr.encode() == PROGRESS_MARK + b"half\n"
    assert done.stdout == "None\n"
