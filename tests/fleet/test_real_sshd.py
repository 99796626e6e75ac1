"""The list of hosts over a real sshd on this machine. Marked: it starts a daemon."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from gpuwatch.fleet import ssh_source
from gpuwatch.fleet.fleet_summary import summarize_host
from gpuwatch.fleet.ssh_source import SshSource
from tests.cluster.nodes import running, wait_for_none
from tests.cluster.test_sshd import Server, pytestmark, server  # noqa: F401
from tests.fleet.test_hosts import views
from tests.waiting import wait_for

THERE = ("sh", "-c", f'exec {shlex.quote(sys.executable)} -m gpuwatch "$@" --sim 2x1GiB', "sh")


def test_a_host_answers_comes_back_and_is_left_clean(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(ssh_source, "_RETRY_DELAYS_SECONDS", (0.5,))
    host, interval = f"127.0.0.1:{server.port}", 0.613
    source = SshSource([host, "127.0.0.1:1"], interval, command=THERE, options=shlex.split(server.options))
    source.start(lambda: None)
    try:
        wait_for(lambda: views(source)[host].answered)
        assert [gpu.use for gpu in summarize_host(views(source)[host]).gpus] == ["free", "free"]
        wait_for(lambda: views(source)["127.0.0.1:1"].reason == "refuses ssh connections")
        (there,) = [pid for pid in running(f"{interval}s") if program_of(pid).startswith("python")]
        os.kill(there, signal.SIGKILL)
        wait_for(lambda: not views(source)[host].answered)
        wait_for(lambda: views(source)[host].answered)
    finally:
        source.stop()
    wait_for_none(f"{interval}s", 30)  # on the host all ends at the next sample


def program_of(pid: int) -> str:
    """The name of a process's program."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].rpartition(b"/")[2].decode()
