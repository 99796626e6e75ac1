"""``gpuwatch record`` and the dashboard with alerts, on simulated GPUs that break."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.machine.recording.reader import Recording
from gpuwatch.sim import faults
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import gpuwatch
from tests.recording.recordings import recorded_samples
from tests.terminal import Terminal
from tests.waiting import wait_for


def lines(path: Path, count: int, seconds: float = 60.0) -> list[dict[str, object]]:
    def found() -> list[str]:
        return path.read_text().splitlines() if path.exists() else []

    wait_for(lambda: len(found()) >= count, f"{count} lines in {path.name}", seconds)
    return [json.loads(line) for line in found()]


@pytest.fixture
def machine(sim_machine: Callable[[str], SimMachine]) -> SimMachine:
    return sim_machine("2x8GiB")


def test_record_tells_a_command(machine: SimMachine, tmp_path: Path) -> None:
    file, out = tmp_path / "x.gpuwatch", tmp_path / "out"
    command = [sys.executable, "-m", "gpuwatch", "record", str(file), "--on-finding", f"cat >> {out}; sleep 600"]
    with subprocess.Popen(
        command, env=machine.environment(os.environ), stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            wait_for(lambda: recorded_samples(file), "the first sample")
            faults.lose(machine, 1)
            (alert,) = lines(out, 1)
            assert (alert["schema"], alert["phase"], alert["device_index"]) == ("gpuwatch.alert/1", "onset", 1)
            assert alert["simulated"] is True
            assert alert["finding"]["id"] == "hardware.fault"  # type: ignore[index]
            before = recorded_samples(file)
            wait_for(lambda: recorded_samples(file) >= before + 2, "samples while the command hangs")
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
    assert not [one for one in Path("/proc").glob("[0-9]*/cmdline") if str(out).encode() in _read(one)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_failure_is_an_event_of_the_recording(machine: SimMachine, tmp_path: Path) -> None:
    file = tmp_path / "x.gpuwatch"
    faults.lose(machine, 1)
    command = [sys.executable, "-m", "gpuwatch", "record", str(file), "--webhook", "http://127.0.0.1:9/s3cret"]
    with subprocess.Popen(command, env=machine.environment(os.environ), stderr=subprocess.PIPE) as process:

        def failures() -> list[str]:
            if not recorded_samples(file):
                return []
            with Recording(file) as recording:
                return [event.text for event in recording.events() if event.kind == "alert.failed"]

        found = wait_for(failures, pause=0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert found[0].endswith("Connection refused")


def test_the_dashboard_tells_a_command_and_the_terminal(machine: SimMachine, tmp_path: Path) -> None:
    out = tmp_path / "out"
    environment = machine.environment(os.environ) | {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    environment = {name: value for name, value in environment.items() if name not in ("TMUX", "STY")}
    command = [sys.executable, "-m", "gpuwatch", "--on-finding", f"cat >> {out}", "--notify"]
    terminal = Terminal(command, environment, 120, 40)
    try:
        assert terminal.drain(30, lambda text: b"GPU" in text) is not None
        terminal.drain(2)
        faults.lose(machine, 1)
        assert terminal.drain(30, lambda text: b"\x1b]9;gpuwatch: GPU 1: " in text) is not None
        (alert,) = lines(out, 1)
        assert alert["phase"] == "onset"
    finally:
        terminal.keys("q")
        assert terminal.close(15) == 0


@pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux")
@pytest.mark.parametrize("lets", ["on", "off"])
def test_tmux_lets_notifications_through_where_it_may(machine: SimMachine, tmp_path: Path, lets: str) -> None:
    out, settings = tmp_path / "out", tmp_path / "tmux.conf"
    settings.write_text(f"set -g allow-passthrough {lets}\n")
    environment = machine.environment(os.environ) | {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    environment = {name: value for name, value in environment.items() if name not in ("TMUX", "STY", "TMUX_PANE")}
    environment["TMUX_TMPDIR"] = str(tmp_path)
    dashboard = f"{shlex.quote(sys.executable)} -m gpuwatch --on-finding 'cat >> {out}' --notify"
    terminal = Terminal(["tmux", "-f", str(settings), "new-session", dashboard], environment, 120, 40)
    try:
        assert terminal.drain(30, lambda text: b"GPU" in text) is not None
        terminal.drain(2)
        faults.lose(machine, 1)
        lines(out, 1)
        told = terminal.drain(3 if lets == "off" else 30, lambda text: b"\x1b]9;gpuwatch: GPU 1: " in text)
        assert (told is not None) == (lets == "on")
    finally:
        subprocess.run(["tmux", "kill-server"], env=environment, check=False)
        terminal.close()


@pytest.mark.parametrize("command", [(), ("record",)])
def test_a_url_that_is_none(command: tuple[str, ...]) -> None:
    done = gpuwatch(*command, "--webhook", "file:///etc/passwd")
    assert (done.code, done.out) == (2, "")
    assert "--webhook takes a URL" in done.err or "needs a terminal" in done.err


def test_a_unit_has_no_alerts() -> None:
    done = gpuwatch("record", "--print-unit", "--on-finding", "x")
    assert (done.code, done.out) == (2, "")
    assert "--print-unit" in done.err
