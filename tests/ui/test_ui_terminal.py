"""On a real terminal: the first frame, and what is left behind. And what importing the app loads."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from gpuwatch.sim.simulated_machine import SimMachine
from tests.screen import Screen
from tests.terminal import Terminal as Shell
from tests.terminal import family
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
LEFT_ALTERNATE_SCREEN = b"\x1b[?1049l"
CURSOR_SHOWN = b"\x1b[?25h"
MOUSE_OFF = b"\x1b[?1000l"

CRASH = """
import sys
from tests.ui import machines
from tests.ui.feed import MovingFeed
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.session.session import Session
from gpuwatch.ui.app import GpuwatchApp, run

class Breaks(ConditionEngine):
    def observe(self, snapshot):
        raise RuntimeError("a rule broke")

sys.exit(run(GpuwatchApp(Session(MovingFeed(machines.pair), conditions=Breaks()))))
"""


class Terminal:
    """A program on a pty of 120 x 40, and everything that it wrote."""

    def __init__(self, *command: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        environment = dict(os.environ, TERM="xterm-256color", COLUMNS="120", LINES="40", PYTHONPATH=str(ROOT))
        self.process = subprocess.Popen(
            [sys.executable, *command], stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env=environment
        )
        self.output = b""

    def until(self, wanted: bytes, seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while wanted not in self.output:
            if time.monotonic() > end:
                raise AssertionError(f"{wanted!r} did not come: {self.output[-2000:]!r}")
            self._read(0.1)

    def type(self, text: bytes) -> None:
        os.write(self.master, text)

    def end(self) -> int:
        end = time.monotonic() + 20
        while self.process.poll() is None:
            if time.monotonic() > end:
                self.process.kill()
                raise AssertionError("it did not end")
            self._read(0.05)
        while self._read(0.2):
            pass
        return self.process.returncode

    def _read(self, wait: float) -> bool:
        if not select.select([self.master], [], [], wait)[0]:
            return False
        self.output += os.read(self.master, 65536)
        return True

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.mark.parametrize("how", ["q", "ctrl+c", "terminate", "hangup", "crash", "kill"])
def test_the_terminal_is_left_as_it_was(how: str) -> None:
    command = ("-c", CRASH) if how == "crash" else ("-m", "tests.ui.demo", "--machine", "pair")
    terminal = Terminal(*command)
    try:
        if how != "crash":
            terminal.until(b"NVIDIA H200")
            if how == "terminate":
                terminal.process.send_signal(signal.SIGTERM)
            elif how == "hangup":
                terminal.process.send_signal(signal.SIGHUP)
            elif how == "kill":
                terminal.until(b"\x1b[?1000h")
                terminal.process.kill()
            else:
                terminal.type(b"q" if how == "q" else b"\x03")
        code = terminal.end()
        if how != "terminate":  # the default action of SIGTERM leaves no time for manners
            assert code == {"crash": 1, "hangup": 128 + signal.SIGHUP, "kill": -signal.SIGKILL}.get(how, 0)
            for sign in (LEFT_ALTERNATE_SCREEN, CURSOR_SHOWN, MOUSE_OFF):
                assert sign in terminal.output, sign
            on = dict.fromkeys(re.findall(rb"\x1b\[\?(\d+)h", terminal.output.rpartition(LEFT_ALTERNATE_SCREEN)[0]))
            off = set(re.findall(rb"\x1b\[\?(\d+)l", terminal.output.rpartition(b"NVIDIA H200")[2]))
            assert set(on) - {b"7", b"25", b"2026"} <= off
            assert how == "kill" or termios.tcgetattr(terminal.slave) == terminal.before
        if how == "crash":
            assert b"a rule broke" in terminal.output.split(LEFT_ALTERNATE_SCREEN)[-1], "on the normal screen"
    finally:
        terminal.close()


def test_stopped_and_continued_from_outside_all_is_drawn_again_and_keys_work() -> None:
    terminal = Terminal("-m", "tests.ui.demo", "--machine", "pair", "--still")
    try:
        terminal.until(b"NVIDIA H200")
        threads = _threads(terminal.process.pid)
        for _ in range(2):
            terminal.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED)
            terminal.output = b""
            terminal.process.send_signal(signal.SIGCONT)
            terminal.until(b"NVIDIA H200")
        # One of the start may still run.
        wait_for(lambda: _threads(terminal.process.pid) <= threads, f"at most {threads} threads")
        terminal.type(b"q")
        assert terminal.end() == 0
        assert termios.tcgetattr(terminal.slave) == terminal.before
    finally:
        terminal.close()


def _threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def test_ctrl_z_goes_to_the_shell_and_fg_comes_back(sim_machine: Callable[[str], SimMachine]) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash, whose jobs are stopped and continued")
    environment = sim_machine("1x8GiB").environment(os.environ) | {"PS1": "READY:", "PYTHONPATH": str(ROOT)}
    shell = Shell([bash, "--norc", "--noprofile", "-i"], environment, 120, 40)

    def wait(wanted: bytes) -> bytes:
        before = len(shell.output)
        shell.drain(20, lambda output: wanted in output[before:])
        new = bytes(shell.output[before:])
        assert wanted in new, new[-1500:]
        return new

    try:
        wait(b"READY:")
        shell.keys(f"{sys.executable} -m gpuwatch\n")
        wait(b"quit")
        wait_for(lambda: shell.drain(0.1) or len(family(shell.pid)) == 4, "the dashboard, its collector and its guard")
        *members, guard = family(shell.pid)[1:]
        assert Path(f"/proc/{guard}/comm").read_text() == "sh\n"
        shell.keys("\x1a")
        left = wait(b"READY:")
        for sign in (LEFT_ALTERNATE_SCREEN, CURSOR_SHOWN, MOUSE_OFF):
            assert sign in left, sign
        _wait_for_states(members, {"T"})  # nothing samples, so nothing piles up
        shell.keys("stty -a\n")
        modes = wait(b"READY:")
        assert b" icanon" in modes
        assert b" echo " in modes
        shell.keys("fg\n")
        back = wait(b"quit")
        assert b"\x1b[?1003h" in back
        assert b"\x1b[?1049h" in back
        drawn = Screen(120, 40).feed(back[back.index(b"\x1b[?1049h") :]).rows
        assert "gpuwatch" in drawn[0]
        assert "Simulated GPU" in "".join(drawn)
        assert "Processes" in "".join(drawn)
        _wait_for_states(members, {"R", "S"})
        shell.keys("q")
        wait(b"READY:")
        assert not shell.output.count(b"Traceback")
    finally:
        shell.keys("exit\n")
        shell.close()


def _wait_for_states(members: Iterable[int], wanted: set[str]) -> None:
    def states() -> set[str]:
        return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in members}

    wait_for(lambda: states() <= wanted, lambda: f"{wanted}: {states()}")


def test_without_a_shell_ctrl_z_says_so() -> None:
    terminal = Shell([sys.executable, "-m", "tests.ui.demo"], dict(os.environ, PYTHONPATH=str(ROOT)), 120, 40)
    try:
        assert terminal.drain(20, lambda output: b"quit" in output) is not None
        terminal.keys("\x1a")
        assert terminal.drain(5, lambda output: b"no shell to suspend to" in output) is not None
        terminal.keys("q")
    finally:
        assert terminal.close() == 0


def test_the_first_frame_does_not_wait_for_the_first_sample() -> None:
    terminal = Terminal("-m", "tests.ui.demo", "--delay", "600", "--past", "0")
    try:
        terminal.until(b"querying the driver")
        terminal.type(b"q")
        assert terminal.end() == 0
    finally:
        terminal.close()


def test_importing_the_app_loads_nothing_that_the_first_frame_does_not_need() -> None:
    code = "import sys, gpuwatch.ui.app; print('\\n'.join(sys.modules))"
    loaded = set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout.split()
    )
    assert "textual.app" in loaded
    for unwanted in (
        "textual.widgets._data_table",
        "textual.widgets._text_area",
        "textual.widgets._markdown",
        "markdown_it",
        "tree_sitter",
        "pygments",
        "psutil",
        "pynvml",
        "jinja2",
        "numpy",
        "gpuwatch.ui.screens.help_sheet",
        "gpuwatch.ui.screens.sheet_bases",
        "gpuwatch.ui.widgets.filter_bar",
    ):
        assert unwanted not in loaded
