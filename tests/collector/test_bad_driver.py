"""The dashboard in a terminal while the driver, or the process that asks it, misbehaves."""

from __future__ import annotations

import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from gpuwatch.sim import faults
from gpuwatch.sim.simulated_machine import SimMachine
from tests.terminal import Terminal, ended, family, wait_until_ended, workers
from tests.waiting import wait_for

Open = Callable[[str], SimMachine]
REACTION = 0.1
"""Seconds from a key to what it draws, as the design has it."""
PRESSES = 6


class Dashboard:
    """gpuwatch in a pseudo-terminal on a simulated machine."""

    def __init__(self, machine: SimMachine) -> None:
        command = [sys.executable, "-m", "gpuwatch"]
        self.terminal = Terminal(command, machine.environment(os.environ), 120, 40)
        assert self.sees(b"0000:01:00.0", 20), "the first sample is on the screen"

    def sees(self, text: bytes, seconds: float) -> bool:
        """Waits for something new on the screen."""
        self.terminal.output.clear()
        return self.terminal.drain(seconds, lambda output: text in output) is not None

    def reaction(self) -> float:
        """Median of the seconds between a key and the tab that it opens."""
        took = []
        for key, drawn in [("6", b"[6 Events]"), ("1", b"[1 Overview]")] * PRESSES:
            self.terminal.drain(0.02)
            self.terminal.output.clear()
            pressed = time.monotonic()
            self.terminal.keys(key)
            assert self.terminal.drain(5, lambda output, drawn=drawn: drawn in output) is not None
            took.append(time.monotonic() - pressed)
        return statistics.median(took)

    @property
    def collectors(self) -> list[int]:
        """Those that live; between two of them the next one is waited for."""
        return wait_for(lambda: [pid for pid in workers(self.terminal.pid)[1:] if not ended(pid)], "a collector")

    def quit(self) -> int | None:
        self.terminal.keys("q")
        return self.terminal.close(10)


@pytest.fixture
def watch() -> Iterator[Callable[[SimMachine], Dashboard]]:
    started: list[Dashboard] = []

    def start(machine: SimMachine) -> Dashboard:
        started.append(Dashboard(machine))
        return started[-1]

    yield start
    for dashboard in started:
        for pid in family(dashboard.terminal.pid):
            if not ended(pid):
                os.kill(pid, signal.SIGKILL)


def test_keys_answer_while_the_driver_hangs_and_values_return(sim_machine: Open, watch: Callable) -> None:
    machine = sim_machine("2x8GiB")
    dashboard = watch(machine)
    faults.hang(machine, 600)
    assert dashboard.sees(b"no answer for", 15)
    assert dashboard.reaction() < REACTION
    machine.clear_faults()
    machine.override(0, "temperature_celsius", 77)
    assert dashboard.sees(b"77", 15), "without a restart of gpuwatch"
    before = dashboard.collectors
    assert dashboard.quit() == 0
    for pid in before:
        wait_until_ended(pid)


def test_keys_answer_while_the_collector_is_stopped_and_killed(sim_machine: Open, watch: Callable) -> None:
    machine = sim_machine("2x8GiB")
    dashboard = watch(machine)
    (first,) = dashboard.collectors
    os.kill(first, signal.SIGSTOP)
    assert dashboard.sees(b"collector stopped", 15), "the driver is not blamed for it"
    assert dashboard.reaction() < REACTION
    os.kill(first, signal.SIGKILL)
    assert dashboard.reaction() < REACTION
    machine.override(0, "temperature_celsius", 77)
    assert dashboard.sees(b"77", 15)
    (second,) = dashboard.collectors
    assert second != first
    dashboard.terminal.keys("6")
    assert dashboard.sees(b"replaced", 5), "the screen says what became of it"
    assert dashboard.quit() == 0
    wait_until_ended(second)


@pytest.mark.parametrize("hung", [False, True])
def test_no_collector_outlives_a_dashboard_that_is_killed(sim_machine: Open, watch: Callable, hung: bool) -> None:
    machine = sim_machine("1x8GiB")
    dashboard = watch(machine)
    if hung:
        faults.hang(machine, 600)
        time.sleep(1.5)  # a call hangs
    (collector,) = dashboard.collectors
    os.kill(dashboard.terminal.pid, signal.SIGKILL)
    os.waitpid(dashboard.terminal.pid, 0)
    wait_until_ended(collector)


def test_leaving_does_not_wait_for_a_driver_that_hangs(sim_machine: Open, watch: Callable) -> None:
    machine = sim_machine("1x8GiB")
    dashboard = watch(machine)
    faults.hang(machine, 600)
    assert dashboard.sees(b"no answer for", 15)
    collectors = dashboard.collectors
    began = time.monotonic()
    assert dashboard.quit() == 0
    assert time.monotonic() - began < 5
    for pid in collectors:
        wait_until_ended(pid)
