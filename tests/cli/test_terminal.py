"""The dashboard as a program in a real terminal: it draws, it leaves, it restores."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import pytest

from gpuwatch.sim.simulated_machine import SimMachine
from tests.terminal import Terminal, workers

_LEAVE_ALTERNATE_SCREEN = b"\x1b[?1049l"
_SHOW_CURSOR = b"\x1b[?25h"


def start(machine: SimMachine | None, columns: int = 120, rows: int = 40) -> Terminal:
    environment = dict(os.environ) if machine is None else machine.environment(os.environ)
    return Terminal([sys.executable, "-m", "gpuwatch"], environment, columns, rows)


def assert_restored(terminal: Terminal) -> None:
    output = bytes(terminal.output)
    assert b"Traceback" not in output
    assert output.rfind(_LEAVE_ALTERNATE_SCREEN) > output.rfind(b"\x1b[?1049h")
    assert output.rfind(_SHOW_CURSOR) > output.rfind(b"\x1b[?25l")
    assert output.rfind(b"\x1b[?1003l") >= output.rfind(b"\x1b[?1003h"), "mouse reporting is still on"


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 60)])
def test_all_eight_are_drawn_and_q_restores(sim_machine: Callable[[str], SimMachine], columns: int, rows: int) -> None:
    machine = sim_machine("8x80GiB")
    terminal = start(machine, columns, rows)
    seen = terminal.drain(15, lambda output: output.count(b"80.0") >= 8 or output.count(b"/80.0") >= 8)
    assert seen is not None, bytes(terminal.output)[-3000:]
    members = workers(terminal.pid)
    assert len(members) == 2, "the dashboard and its collector"
    terminal.keys("q")
    assert terminal.close() == 0
    assert_restored(terminal)
    assert not any(os.path.exists(f"/proc/{member}") for member in members)


def test_without_a_driver_the_reason_is_on_the_screen() -> None:
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has a driver")
    terminal = start(None)
    assert terminal.drain(15, lambda output: b"libnvidia-ml.so.1" in output) is not None
    assert terminal.drain(5, lambda output: b"--sim" in output) is not None
    terminal.keys("q")
    assert terminal.close() == 0
    assert_restored(terminal)


@pytest.mark.parametrize("sign", [b"Simulated", b"\x1b[?1003h"], ids=["first picture", "Textual"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_restore_the_terminal_too(
    sim_machine: Callable[[str], SimMachine], number: signal.Signals, sign: bytes
) -> None:
    terminal = start(sim_machine("1x8GiB"))
    assert terminal.drain(30, lambda output: sign in output) is not None
    os.kill(terminal.pid, number)
    # Where Ctrl+C meets exec() of a text (dataclasses, named tuples, while modules are imported), Python ends itself by
    # SIGINT once everything is restored; a shell shows 130 for both.
    assert terminal.close() in (0, 128 + number, *([-number] if number == signal.SIGINT else []))
    assert_restored(terminal)
