"""``--on ssh`` with a real sshd on this machine. Marked: it starts a daemon."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuwatch.core.model.comparison import Comparison
from tests.cluster.nodes import comparison, is_program, running, wait_for_none
from tests.waiting import wait_for

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
pytestmark = [
    pytest.mark.ssh,
    pytest.mark.skipif(
        not Path(SSHD).exists() or os.geteuid() != 0, reason="needs root and sshd (apt install openssh-server)"
    ),
    pytest.mark.timeout(200),
]


@dataclass
class Server:
    port: int
    options: str

    def run(self, *arguments: str, host: str = "127.0.0.1", options: str = "") -> tuple[int, Comparison]:
        done = subprocess.run(self.command(*arguments, host=host, options=options), capture_output=True, text=True)
        return comparison(done)

    def command(self, *arguments: str, host: str = "127.0.0.1", options: str = "") -> list[str]:
        name, *rest = arguments
        return [
            *(sys.executable, "-m", "gpuwatch", name, "--json", "--on", f"ssh:{host}:{self.port}"),
            *("--launcher-options", options or self.options),
            *("--remote-command", f"{sys.executable} -m gpuwatch", *rest),
        ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("sshd")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    (folder / "config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host\nPidFile {folder}/pid\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n"
        "PrintMotd yes\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen([SSHD, "-D", "-f", folder / "config", "-E", folder / "log"])
    try:

        def listens() -> bool:
            with socket.socket() as one:
                return one.connect_ex(("127.0.0.1", port)) == 0

        wait_for(listens, "sshd", pause=0.1)
        yield Server(
            port, f"-F none -i {folder}/user -o UserKnownHostsFile={folder}/known -o StrictHostKeyChecking=yes"
        )
    finally:
        process.terminate()
        process.wait(10)


def test_a_snapshot_over_ssh(server: Server) -> None:
    code, document = server.run("snapshot", "--sim", "2x1GiB")
    assert [(node.state, node.reason) for node in document.nodes] == [("ok", "")]
    assert document.nodes[0].snapshot is not None
    assert len(document.nodes[0].snapshot.devices) == 2
    assert code == 0


def test_refused_and_unknown_keys(server: Server, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    other = server.options.replace("/user", "/none", 1) + f" -i {tmp_path}/other -o IdentitiesOnly=yes"
    _, document = server.run("snapshot", options=other)
    assert "none of your keys" in document.nodes[0].reason
    (tmp_path / "known").touch()
    fresh = f"{server.options.partition(' -o ')[0]} -o UserKnownHostsFile={tmp_path}/known -o StrictHostKeyChecking=yes"
    _, document = server.run("snapshot", options=fresh)
    assert "host key" in document.nodes[0].reason


def test_nobody_listens(server: Server) -> None:
    _, document = server.run("snapshot", host="127.0.0.1:1,127.0.0.1")
    assert document.nodes[0].reason == "refuses ssh connections"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_over_there(server: Server, number: signal.Signals) -> None:
    mark = f"1234.9{int(number)}"
    command = server.command("try", "--sim", "1x1GiB", "--config", "default", "--", "sleep", mark)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: any(is_program(pid, mark) for pid in running(mark)), pause=0.2)
        process.send_signal(number)
        process.wait(60)
    wait_for_none(mark, 30)
