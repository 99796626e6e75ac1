"""Changes that go straight to the terminal: little is written, and Textual would have drawn the same."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.sim.machine import SimMachine
from tests.screen import Screen
from tests.terminal import Terminal

SIZE = (120, 40)
_NUMBERS = re.compile(r"\d+:\d\d:\d\d|\d")


@pytest.fixture
def dashboard(
    sim_machine: Callable[[str], SimMachine], sleeper: Callable[[], int], tmp_path: Path
) -> Callable[..., Terminal]:
    machine = sim_machine("2x24GiB")
    for number in range(6):
        machine.attach(sleeper(), number % 2, 2**30)

    def start(**environment: str) -> Terminal:
        own = {"XDG_STATE_HOME": str(tmp_path)} | environment
        terminal = Terminal([sys.executable, "-m", "gpuwatch"], machine.environment(os.environ) | own, *SIZE)
        assert terminal.drain(30, lambda output: b"sleep 300" in output) is not None
        terminal.drain(3)
        return terminal

    return start


def still(rows: list[str]) -> list[str]:
    """What neither time nor load changes: the top line and the table, without numbers."""
    head = next(number for number, row in enumerate(rows) if " PID " in row)
    return [_NUMBERS.sub("#", row) for row in (rows[0], *rows[head:])]


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"TERM": "linux"}])
def test_a_second_writes_little_and_what_textual_would_have_drawn(
    dashboard: Callable[..., Terminal], environment: dict[str, str]
) -> None:
    terminal = dashboard(**environment)
    before = len(terminal.output)
    terminal.drain(5)
    written = (len(terminal.output) - before) / 5
    rows = Screen(*SIZE).feed(bytes(terminal.output)).rows
    assert 0 < written < 1500, "bytes a second"
    # A sheet over the screen and away again: Textual draws all of it from its own caches.
    terminal.keys("?")
    assert terminal.drain(10, lambda output: b"Keys" in output[before:]) is not None
    terminal.drain(1)
    terminal.keys("\x1b")
    terminal.drain(2)
    again = Screen(*SIZE).feed(bytes(terminal.output)).rows
    terminal.keys("q")
    assert terminal.close() == 0
    assert still(again) == still(rows)
    clocks = [re.search(r"\d\d:\d\d:\d\d", found[0]) for found in (rows, again)]
    assert all(clocks)
    assert clocks[0] != clocks[1]
