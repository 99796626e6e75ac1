"""Bad answers of the driver: no front end fails, no other reading is lost, nothing is concluded from them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from gpuwatch.sim.simulated_machine import SimMachine
from tests.safety.fault_pairs import SHAPE

PAIRS = 2000


FUNCTIONS = 70
Count = Callable[[str, object], None]


def fire(count: Count, machine: SimMachine, *arguments: str, of: str = "faulted_calls") -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", f"tests.safety.{of}", *arguments],
        env=machine.environment(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, object] = json.loads(done.stdout)
    count("counted", ", ".join(f"{value} {name}" for name, value in said.items() if name not in ("wrong", "at")))
    return said


def test_every_call_with_every_bad_answer_in_every_front_end(
    sim_machine: Callable[[str], SimMachine], record_property: Count
) -> None:
    said = fire(record_property, sim_machine("2x8GiB"))
    assert said["wrong"] == []
    assert said["cases"] == said["functions"] * said["behaviours"]  # type: ignore[operator]
    assert said["functions"] > FUNCTIONS
    assert said["shown"] == 4 * said["cases"]  # type: ignore[operator]


def test_every_fault_begins_is_told_of_its_gpu_and_ends(
    sim_machine: Callable[[str], SimMachine], record_property: Count
) -> None:
    said = fire(record_property, sim_machine(SHAPE), "12", of="fault_pairs")
    assert said["wrong"] == []
    assert said["cases"] == 18 + 12


@pytest.mark.long
def test_every_pair_of_faults_in_every_order(sim_machine: Callable[[str], SimMachine], record_property: Count) -> None:
    said = fire(record_property, sim_machine(SHAPE), of="fault_pairs")
    assert said["wrong"] == []
    assert said["cases"] == 290


@pytest.mark.long
def test_pairs_of_bad_answers(sim_machine: Callable[[str], SimMachine], record_property: Count) -> None:
    said = fire(record_property, sim_machine("2x8GiB"), "20261123", str(PAIRS))
    assert said["wrong"] == []
    assert said["cases"] == PAIRS
