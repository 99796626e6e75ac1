"""Nodes that misbehave, and what is left of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gpuwatch.core.model.comparison import Comparison
from gpuwatch.core.model.json_codec import from_json
from gpuwatch.fleet.cluster.fan_out import NodeReply, fan_out
from gpuwatch.fleet.cluster.launchers import Job, Plan
from tests.waiting import wait_for

AGENT = "import sys; from gpuwatch.fleet.cluster.node_agent import NodeAgent; sys.exit(NodeAgent().run(sys.argv[1:]))"


def agent(*program: str) -> tuple[str, ...]:
    """A node whose command is ``program`` instead of gpuwatch."""
    return (sys.executable, "-c", AGENT, *program)


def shell(script: str) -> tuple[str, ...]:
    return ("sh", "-c", script)


class Nodes:
    """A launcher of local processes."""

    start_seconds = 30.0

    def __init__(self, *commands: tuple[str, ...], down: Sequence[tuple[str, str]] = ()) -> None:
        self._plan = Plan(tuple(Job(f"n{number}", one) for number, one in enumerate(commands, 1)), tuple(down))

    def plan(self, arguments: Sequence[str]) -> Plan:
        return self._plan

    def failure_reason(self, exit_code: int, messages: str) -> str:
        return ""


def one(command: tuple[str, ...], *, seconds: float = 20.0, start_seconds: float | None = None) -> NodeReply:
    (reply,), interrupted = fan_out(Nodes(command), [], seconds=seconds, start_seconds=start_seconds)
    assert not interrupted
    return reply


def running(mark: str) -> list[int]:
    """Processes with ``mark`` in their command lines, without this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if mark.encode() in line and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found


def wait_for_none(mark: str, seconds: float = 20.0) -> None:
    """Until no process has ``mark`` in its command line."""
    wait_for(lambda: not running(mark), lambda: f"the end of {running(mark)}", seconds, pause=0.05)


def is_program(pid: int, mark: str) -> bool:
    """Whether it is the program itself, ``sleep MARK``, not one of those that started it."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", mark.encode()]
    except OSError:
        return False


def comparison(done: subprocess.CompletedProcess[str]) -> tuple[int, Comparison]:
    """Exit code and document of a command with ``--json`` on several nodes."""
    assert done.stdout, done.stderr
    document = from_json(done.stdout.encode())
    assert isinstance(document, Comparison)
    return done.returncode, document
