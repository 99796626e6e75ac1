"""Launchers: how a command gets onto the nodes. ``--on local:4``, ``ssh:a,b``, ``slurm:gpu``, ``ray:10.0.0.1:6379``.

To add one: a subclass of :class:`Launcher`, and its name in ``_LAUNCHERS``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.formatting.suggest import did_you_mean
from gpuwatch.core.safe_text import last_line
from gpuwatch.fleet.cluster.node_protocol import NOT_FOUND
from gpuwatch.fleet.host_list import parse_ssh_hosts
from gpuwatch.fleet.ssh_command import SSH_FAILED_EXIT_CODE, ssh_command, ssh_failure

_MAX_LOCAL_NODES = 64
_QUERY_SECONDS = 20.0
"""How long Slurm's controller has to answer."""


@dataclass(frozen=True, slots=True)
class Job:
    """One local process that runs the command on one node, or on all of them if ``node`` is None."""

    node: str | None
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start, and the nodes on which nothing can be, each with the reason."""

    jobs: tuple[Job, ...]
    down: tuple[tuple[str, str], ...] = ()


class Launcher(ABC):
    """A way to run ``gpuwatch node -- ARGUMENTS`` on each node."""

    start_seconds = 60.0
    """How long a node has until gpuwatch answers there."""

    def __init__(self, nodes: str, command: list[str], options: list[str]) -> None:
        """``nodes``: what follows the launcher's name. ``command``: what a node runs, up to the arguments.

        ``options``: further arguments of ``ssh`` or ``srun``. UsageError for nodes that the launcher does not accept.
        """
        self._nodes, self._command, self._options = nodes, command, options

    @abstractmethod
    def plan(self, arguments: Sequence[str]) -> Plan:
        """The jobs; GpuwatchError if the nodes cannot be found out."""

    def failure_reason(self, exit_code: int, messages: str) -> str:
        """Why a job ended before gpuwatch answered, as far as this launcher knows; else empty."""
        return ""


def make_launcher(text: str, *, remote_command: Sequence[str] = (), options: Sequence[str] = ()) -> Launcher:
    """The launcher of ``--on TEXT``.

    ``remote_command``: what to call instead of ``gpuwatch``, with its arguments; ``options``: further arguments of
    ``ssh`` or ``srun``.

    Raises:
        UsageError: an unknown launcher, or nodes that it does not accept.
    """
    name, _, rest = text.partition(":")
    if name not in _LAUNCHERS:
        raise UsageError(
            f"--on {text[:80]}: no launcher {name[:40]!r}{did_you_mean(name, _LAUNCHERS)}",
            hint="local:4, ssh:a,b,n[1-8], slurm, slurm:PARTITION, ray or ray:ADDRESS",
        )
    if options and name not in ("ssh", "slurm"):
        raise UsageError("--launcher-options applies only to ssh and slurm", hint="omit it")
    command = [sys.executable, "-m", "gpuwatch"] if name == "local" else ["gpuwatch"]
    return _LAUNCHERS[name](rest, [*(remote_command or command), "node", "--"], list(options))


class Local(Launcher):
    """``local:N``: N times on this machine, for tests and to see what a cluster would print."""

    def __init__(self, nodes: str, command: list[str], options: list[str]) -> None:
        super().__init__(nodes, command, options)
        if not re.fullmatch(r"[0-9]{1,3}", nodes) or not 1 <= int(nodes) <= _MAX_LOCAL_NODES:
            raise UsageError(
                f"--on local:{nodes[:40]}: give a number from 1 to {_MAX_LOCAL_NODES}", hint="for example local:4"
            )

    def plan(self, arguments: Sequence[str]) -> Plan:
        command = (*self._command, *arguments)
        return Plan(tuple(Job(f"local{number}", command) for number in range(1, int(self._nodes) + 1)))


class Ssh(Launcher):
    """``ssh:a,b,n[1-8]``: hosts with gpuwatch on their PATH."""

    def __init__(self, nodes: str, command: list[str], options: list[str]) -> None:
        super().__init__(nodes, command, options)
        self._hosts = parse_ssh_hosts(nodes)

    def plan(self, arguments: Sequence[str]) -> Plan:
        command = [*self._command, *arguments]
        return Plan(tuple(Job(host, tuple(ssh_command(host, command, options=self._options))) for host in self._hosts))

    def failure_reason(self, exit_code: int, messages: str) -> str:
        """In words, if it is ssh that failed."""
        return ssh_failure(messages) if exit_code == SSH_FAILED_EXIT_CODE else ""


class Slurm(Launcher):
    """``slurm`` or ``slurm:PARTITION``: every node of the job that this runs in, of the partition, or of the cluster.

    One ``srun`` for each node, so that a busy node keeps no other waiting.
    """

    start_seconds = 300.0

    def __init__(self, nodes: str, command: list[str], options: list[str]) -> None:
        super().__init__(nodes, command, options)
        if nodes and not re.fullmatch(r"[\w.\-]+", nodes, re.ASCII):
            raise UsageError(f"--on slurm:{nodes[:40]}: not the name of a partition", hint="sinfo lists them")
        self._partition = nodes
        self._job = "" if nodes else os.environ.get("SLURM_JOB_ID", "")

    def plan(self, arguments: Sequence[str]) -> Plan:
        """The nodes that can work, and those that are down or drained."""
        if self._job:
            nodes = _slurm_lines("scontrol", "show", "hostnames", os.environ.get("SLURM_JOB_NODELIST", ""))
            states = dict.fromkeys(nodes, "allocated")
        else:
            partition = ["-p", self._partition] if self._partition else []
            lines = _slurm_lines("sinfo", "-h", "-N", "-o", "%N|%T|%E", *partition)
            states = {node: state for node, _, state in (line.partition("|") for line in lines)}
        if not states:
            where = f"partition {self._partition!r}" if self._partition else "the cluster"
            raise UsageError(f"Slurm knows no nodes in {where}", hint="sinfo lists partitions and nodes")
        down = {node: why for node, state in states.items() if (why := _why_unusable(state))}
        placement = ["--overlap"] if self._job else [f"--partition={self._partition}"] if self._partition else []
        jobs = tuple(
            Job(
                node,
                (
                    *("srun", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--job-name=gpuwatch", *placement),
                    *(*self._options, "--", *self._command, *arguments),
                ),
            )
            for node in states
            if node not in down
        )
        return Plan(jobs, tuple(down.items()))

    def failure_reason(self, exit_code: int, messages: str) -> str:
        errors = re.findall(r"^srun: error: (?:slurm_msg_sendto: )?(.+)$", messages, re.MULTILINE)
        if any(re.search(r"[Nn]ode failure|not responding", line) for line in errors):
            return "the node was lost"
        if re.search(r"execve\(\): .*No such file or directory", messages):
            return NOT_FOUND
        own_errors = [line.strip() for line in errors if not re.search(r"task \d+: (?:Exited|Terminated|Killed)", line)]
        return own_errors[0] if own_errors else ""


def _why_unusable(state: str) -> str:
    """Why Slurm would start nothing there, from ``STATE|REASON``; empty if it would, now or later."""
    state, _, reason = state.partition("|")
    suffix = "" if reason.strip().lower() in ("", "none", "(null)") else f": {reason.strip()}"
    state_name = state.rstrip("*~#!%$@^-").lower()
    if state.rstrip("~#!%$@^-").endswith("*"):
        return f"does not answer Slurm ({state_name}){suffix}"
    if state_name.startswith(("down", "drain", "fail", "maint", "unknown", "error", "powered_down", "powering_down")):
        return f"{state_name} in Slurm{suffix}"
    return ""


def _slurm_lines(*command: str) -> list[str]:
    """The lines that one of Slurm's programs prints."""
    try:
        completed = subprocess.run(
            command, capture_output=True, timeout=_QUERY_SECONDS, stdin=subprocess.DEVNULL, check=False
        )
    except FileNotFoundError:
        raise GpuwatchError(
            f"{command[0]} is not installed here", hint="run this where Slurm's programs are installed"
        ) from None
    except subprocess.TimeoutExpired:
        raise GpuwatchError(f"{command[0]} does not answer", hint="check slurmctld with scontrol ping") from None
    text = completed.stdout.decode(errors="replace")
    if completed.returncode:
        why = last_line(completed.stderr.decode(errors="replace"))
        raise GpuwatchError(f"{command[0]}: {why or f'exit code {completed.returncode}'}")
    return [line.strip() for line in text.splitlines() if line.strip()]


class Ray(Launcher):
    """``ray`` or ``ray:ADDRESS``: every node of a running Ray cluster, each by a task that is bound to it.

    Ray is imported by a process of its own (:mod:`gpuwatch.fleet.cluster.ray_driver`).
    """

    start_seconds = 120.0

    def __init__(self, nodes: str, command: list[str], options: list[str]) -> None:
        super().__init__(nodes, command, options)
        if "://" in nodes:
            raise UsageError(
                f"--on ray:{nodes[:40]}: Ray Client is not supported", hint="the cluster's own address: 10.0.0.1:6379"
            )
        if nodes.startswith("-") or not nodes.isprintable():
            raise UsageError(f"--on ray:{nodes[:40]!r}: not an address", hint="for example ray:10.0.0.1:6379")

    def plan(self, arguments: Sequence[str]) -> Plan:
        """One driver for all nodes, which it finds itself."""
        driver = (sys.executable, "-m", "gpuwatch.fleet.cluster.ray_driver", self._nodes or "auto")
        return Plan((Job(None, (*driver, json.dumps([*self._command, *arguments]))),))


_LAUNCHERS: dict[str, type[Launcher]] = {"local": Local, "ssh": Ssh, "slurm": Slurm, "ray": Ray}
