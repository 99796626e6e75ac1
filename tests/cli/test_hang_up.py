"""The terminal is closed: the dashboard ends, and its collector with it, at any time."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

import pytest

from gpuwatch.cli import exit_signals
from gpuwatch.sim.simulated_machine import SimMachine
from tests.cli.test_terminal import assert_restored
from tests.terminal import Terminal, family, wait_until_ended

_SIGNS = {"nothing yet": b"", "first picture": b"Simulated", "Textual": b"\x1b[?1003h", "later": b"\x1b[?2004h"}


@pytest.mark.parametrize("sign", _SIGNS.values(), ids=_SIGNS)
def test_a_closed_terminal_ends_all(sim_machine: Callable[[str], SimMachine], sign: bytes) -> None:
    terminal = Terminal(
        [sys.executable, "-m", "gpuwatch"], sim_machine("1x8GiB").environment(os.environ), columns=120, rows=40
    )
    if sign:
        assert terminal.drain(30, lambda output: sign in output) is not None
    else:
        time.sleep(0.1)  # some way into the start
    members = family(terminal.pid)
    terminal.hang_up()
    _, status = os.waitpid(terminal.pid, 0)
    # Before Python is ready for signals the kernel ends it.
    assert os.waitstatus_to_exitcode(status) in (128 + signal.SIGHUP, -signal.SIGHUP)
    for member in members:
        wait_until_ended(member)


def test_where_the_signal_is_ignored_it_ends_too_and_does_not_spin(sim_machine: Callable[[str], SimMachine]) -> None:
    command = ["sh", "-c", f"trap '' HUP; exec {sys.executable} -m gpuwatch"]
    terminal = Terminal(command, sim_machine("1x8GiB").environment(os.environ), 120, 40)
    assert terminal.drain(30, lambda output: b"\x1b[?2004h" in output) is not None
    members = family(terminal.pid)
    terminal.hang_up()
    _, status = os.waitpid(terminal.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    for member in members:
        wait_until_ended(member)


def test_sighup_restores_the_terminal(sim_machine: Callable[[str], SimMachine]) -> None:
    terminal = Terminal([sys.executable, "-m", "gpuwatch"], sim_machine("1x8GiB").environment(os.environ), 120, 40)
    assert terminal.drain(30, lambda output: b"\x1b[?1003h" in output) is not None
    os.kill(terminal.pid, signal.SIGHUP)
    assert terminal.close() == 128 + signal.SIGHUP
    assert_restored(terminal)


def test_stopped_and_continued_from_outside_it_goes_on(sim_machine: Callable[[str], SimMachine]) -> None:
    terminal = Terminal([sys.executable, "-m", "gpuwatch"], sim_machine("1x8GiB").environment(os.environ), 120, 40)
    assert terminal.drain(30, lambda output: b"quit" in output) is not None
    os.kill(terminal.pid, signal.SIGSTOP)
    terminal.drain(0.2)
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.drain(1.0)
    terminal.keys("q")
    assert terminal.close() == 0
    assert_restored(terminal)


def test_a_signal_whose_exception_python_lost_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exit_signals, "exit_code", None)
    exit_signals.exit_if_signaled()
    with pytest.raises(SystemExit) as caught:
        exit_signals._exit(signal.SIGHUP, None)
    assert caught.value.code == 129
    with pytest.raises(SystemExit) as again:
        exit_signals.exit_if_signaled()
    assert again.value.code == 129
