"""Hosts over ssh, with a program named ``ssh`` that runs what it is given here, or fails as ssh does."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.core import input_size_limits
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.model.fleet import HostView
from gpuwatch.core.model.json_codec import to_json
from gpuwatch.core.model.snapshot import Problem
from gpuwatch.fleet import ssh_source
from gpuwatch.fleet.fleet_source import FleetPoller
from gpuwatch.fleet.fleet_summary import summarize_host
from gpuwatch.fleet.ssh_source import SshHostFeed, SshSource
from gpuwatch.ui.fleet_app import FleetApp
from tests.fleet.test_fleet_screen import text_of
from tests.ui import machines
from tests.ui.waiting import until
from tests.waiting import PATIENCE, wait_for

SSH = """#!/bin/sh
while [ "$1" != "--" ]; do shift; done
host=$2
case $host in
  gone) echo "ssh: connect to host gone port 22: Connection refused" >&2; exit 255;;
  changed) echo "Host key verification failed." >&2; exit 255;;
  bare) echo "sh: 1: gpuwatch: not found" >&2; exit 127;;
  old) echo "gpuwatch: no such option: --every (see gpuwatch snapshot --help)" >&2; exit 2;;
  broken) printf 'gpuwatch: it is \\033[31mbroken\\033[0m\\n' >&2; exit 1;;
  newer) while :; do echo '{"schema":"gpuwatch.snapshot/2"}'; sleep 0.1; done;;
  flood) exec cat /dev/zero;;
  mute) exec sleep 1000;;
  once*) cat LINES; exit 1;;
  stops) cat LINES; exec sleep 1000;;
  hangs) cat HANGS; sleep 0.5; while :; do cat HANGS; sleep 0.2; done;;
  real*) exec sh -c "$3 --sim 2x24GiB";;
  *) echo "Welcome to $host"; while :; do cat LINES || exit; sleep 0.2; done;;
esac
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the program; its LINES are two samples."""
    folder = tmp_path / "bin"
    folder.mkdir()
    lines, hangs = tmp_path / "lines", tmp_path / "hangs"
    lines.write_text("".join(to_json(machines.pair(tick), indent=0) for tick in (1, 2)))
    problem = Problem(source="collector", reason="driver.bad-state", detail="no answer from the driver for 12 s")
    silent = replace(machines.pair(3), driver=None, devices=(), processes=(), problems=(problem,))
    hangs.write_text(to_json(silent, indent=0))
    program = folder / "ssh"
    program.write_text(SSH.replace("LINES", shlex.quote(str(lines))).replace("HANGS", shlex.quote(str(hangs))))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(ssh_source, "_RETRY_DELAYS_SECONDS", (0.2,))
    return tmp_path


@pytest.fixture
def open_source() -> Iterator[Callable[..., SshSource]]:
    opened: list[SshSource] = []

    def start(*hosts: str, **options: object) -> SshSource:
        source = SshSource(hosts, 0.25, **options)  # type: ignore[arg-type]
        opened.append(source)
        source.start(lambda: None)
        return source

    yield start
    for source in opened:
        source.stop()


def views(source: SshSource) -> dict[str, HostView]:
    return {host.name: host for host in source.read().hosts}


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("gone", "refuses ssh connections"),
        ("changed", "its host key is not known: log in once manually"),
        ("bare", "no gpuwatch on its PATH"),
        ("old", "its gpuwatch is too old: update it"),
        ("broken", "it is \\x1b[31mbroken\\x1b[0m"),
        ("flood", "sent a line of more than 1 MiB"),
    ],
)
def test_why_a_host_does_not_answer(
    ssh: Path,
    open_source: Callable[..., SshSource],
    host: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(input_size_limits, "HOST_LINE", input_size_limits.HOST_LINE._replace(bytes=1 << 20))
    source = open_source(host, "good")
    wait_for(lambda: not views(source)[host].pending and views(source)["good"].answered)
    assert views(source)[host].reason == reason
    assert source.read().answered == 1


def test_a_host_that_answers_with_something_else(
    ssh: Path, open_source: Callable[..., SshSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_source, "_FIRST_LINE_SECONDS", 0.5)
    source = open_source("newer", "mute")
    assert views(source)["mute"].pending
    wait_for(lambda: not any(host.pending for host in source.read().hosts))
    assert views(source)["newer"].reason.startswith(
        "its answer cannot be read: gpuwatch.snapshot/2 was written by a newer"
    )
    assert views(source)["mute"].reason == "no answer from gpuwatch there"


def test_a_host_that_stops_and_comes_back(
    ssh: Path, open_source: Callable[..., SshSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_source, "_SILENT_SECONDS", 0.3)
    source = open_source("once1", "stops")
    wait_for(lambda: views(source)["stops"].answered)
    wait_for(lambda: views(source)["stops"].reason == "stopped sending")
    assert views(source)["stops"].snapshot is not None, "the last data stay"
    seen = set()
    wait_for(lambda: seen.add(views(source)["once1"].answered) or len(seen) == 2)


def test_a_driver_that_hangs_is_told_from_a_host_that_is_gone(ssh: Path, open_source: Callable[..., SshSource]) -> None:
    source = open_source("hangs")
    wait_for(lambda: not views(source)["hangs"].pending)
    assert views(source)["hangs"].reason.endswith("for 12 s")
    assert summarize_host(views(source)["hangs"]).free_count == 0


def test_nothing_is_left_behind(ssh: Path) -> None:
    source = SshSource(["good", "mute"], 0.25)
    source.start(lambda: None)
    wait_for(lambda: views(source)["good"].answered)
    processes = [stream.process for stream in source._connections.connections.values()]
    assert len(processes) == 2
    source.stop()
    assert all(process is not None and process.poll() is not None for process in processes)


def test_a_feed_of_one_host(ssh: Path) -> None:
    feed = SshHostFeed("good", 0.25)
    assert feed.host.unreachable.startswith("good is another host")
    woken: list[None] = []
    feed.start(lambda: woken.append(None))
    try:
        assert feed.status().state in ("starting", "ok")
        wait_for(lambda: feed.status().state == "ok" and woken)
        assert len(feed.drain()[0].devices) == 2
        feed.interval = 2.0
        wait_for(lambda: feed.interval == 2.0 and feed.status().state == "ok")
    finally:
        feed.stop()


def test_a_feed_of_a_host_that_is_gone(ssh: Path) -> None:
    feed = SshHostFeed("gone", 0.25)
    feed.start()
    try:
        wait_for(lambda: feed.status().state == "stopped")
        assert feed.status().detail == "refuses ssh connections"
    finally:
        feed.stop()


def test_a_feed_without_ssh_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    feed, woken = SshHostFeed("good", 0.25), threading.Event()
    feed.start(woken.set)
    try:
        assert woken.wait(PATIENCE)
        with pytest.raises(GpuwatchError, match="ssh cannot be started"):
            feed.drain()
    finally:
        feed.stop()


async def test_the_list_and_an_open_host(ssh: Path) -> None:
    source = SshSource(["a1", "a2", "gone"], 0.25)
    app = FleetApp(FleetPoller(source, 0.25), lambda name: source.feed(name, 0.25))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "2 of 3 hosts answered" in text_of(app))
        assert "✖ refuses ssh connections" in text_of(app)
        shot = machines.pair(2)
        used = sum(row.user is not None for row in shot.processes)
        assert used
        await pilot.press("enter")
        await until(pilot, lambda: app.session.snapshot is not None)
        await until(pilot, lambda: shot.devices[0].name in text_of(app))
        assert str(shot.processes[0].pid) in text_of(app), "with processes: this is gpuwatch's own data"
        await pilot.press("K")
        await until(pilot, lambda: "a1 is another host" in text_of(app) or "read-only" in text_of(app))
        await pilot.press("escape", "escape", "escape")
        await until(pilot, lambda: app.screen is app.fleet_screen)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuwatch", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_pick_names_the_host(ssh: Path) -> None:
    done = run("pick", "--hosts", "gone,good[1-2]", "--json")
    assert done.returncode == 0, done.stderr
    picked = json.loads(done.stdout)
    assert picked["schema"] == "gpuwatch.host-pick/1"
    assert picked["host"] in ("good1", "good2")
    assert picked["silent"] == [{"host": "gone", "reason": "refuses ssh connections"}]
    done = run("pick", "--hosts", "gone,good1", "-n", "3")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gpuwatch: no host has 3 GPUs:")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--hosts", "a", "--prometheus", "http://x"), "--prometheus and --hosts cannot be combined"),
        (("--hosts", "-oProxyCommand=x"), "'-oProxyCommand=x' is not a host"),
        (("--hosts", ""), "the list of hosts is empty"),
        (("--remote-command", "x"), "--remote-command needs --hosts"),
        (("--hosts", "a", "--remote-command", "'"), "no closing quotation"),
        (("--prometheus-header", "X: y"), "--prometheus-header, -token-file and -ca need --prometheus"),
        (("--prometheus", "http://x", "--prometheus-header", "nonsense"), "--prometheus-header needs 'NAME: VALUE'"),
        (
            ("--prometheus", "http://x", "--prometheus-header", "A: b\r\nC: d"),
            "--prometheus-header needs 'NAME: VALUE'",
        ),
        (("--prometheus", "http://x", "--prometheus-ca", "/nowhere"), "--prometheus-ca: there is no such file"),
        (("--hosts", "a", "--reserve", "--", "true"), "works on one machine only"),
    ],
)
def test_bad_options_are_one_line(ssh: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run("pick", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_real_gpuwatch_on_simulated_gpus(ssh: Path, open_source: Callable[..., SshSource]) -> None:
    source = open_source("real1", command=(sys.executable, "-m", "gpuwatch"))
    wait_for(lambda: views(source)["real1"].answered)
    host = summarize_host(views(source)["real1"])
    assert [gpu.use for gpu in host.gpus] == ["free", "free"]
    assert host.view.snapshot is not None
    assert host.view.snapshot.simulated
