"""Real TensorFlow on simulated GPUs: what the doctor tells beside a cause (tests/agreement has the causes)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.experiment.probing.interpreter import choose_interpreter
from gpuwatch.experiment.probing.interpreter_checks import (
    inspect_interpreter,
    run_framework_check,
    with_opened_libraries,
)
from gpuwatch.experiment.probing.run_draft import RunDraft
from gpuwatch.explain.diagnosis.doctor.check import Facts
from gpuwatch.explain.diagnosis.doctor.doctor_document import build_document
from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.explain.diagnosis.runs.finished_run import complete
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import has_cuda_wheel
from tests.doctor.machines import NOW, replace
from tests.forked import gpuwatch_forked

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(not has_cuda_wheel(), reason="no CUDA build of TensorFlow here"),
]

Machines = Callable[[str], SimMachine]


def doctor(machine: SimMachine, **variables: str) -> tuple[int, dict[str, Any]]:
    result = gpuwatch_forked("doctor", "--json", environment=machine.environment({**os.environ, **variables}))
    assert result.err == ""
    document = json.loads(result.out)
    assert document["simulated"]
    return result.code, document


def explained(document: dict[str, Any]) -> str | None:
    """What explain says of what the doctor's own run wrote, an exception at its end included."""
    return explain([*document["log_tail"], *(test["error"] for test in document["tests"] if test["error"])]).primary


def states(document: dict[str, Any]) -> dict[str, str]:
    return {check["id"]: check["state"] for check in document["checks"]}


def test_healthy(sim_machine: Machines) -> None:
    machine = sim_machine("2x2GiB")
    code, document = doctor(machine, CUDA_VISIBLE_DEVICES="1,0")
    assert (code, document["primary"]) == (0, "healthy")
    assert set(states(document).values()) <= {"pass", "skip"}
    uuids = [device.uuid for device in machine.devices()]
    rows = [(entry["cuda_ordinal"], entry["physical_index"], entry["uuid"]) for entry in document["device_map"]]
    assert rows == [(0, 1, uuids[1]), (1, 0, uuids[0])]
    assert [test["ran_on"][-5:] for test in document["tests"]] == ["GPU:0", "GPU:1"]
    assert all(library["opened"] and library["origin"] == "simulated" for library in document["libraries"])
    assert explained(document) == "healthy"
    assert [machine.used_bytes(index) for index in (0, 1)] == [0, 0]


def test_misspelt_and_exclusive_are_no_errors(sim_machine: Machines) -> None:
    machine = sim_machine("1x2GiB")
    machine.override(0, "compute_mode", 3)
    code, document = doctor(machine, CUDA_VISIBLE_DIVICES="1")
    assert (code, document["primary"]) == (0, "visibility.misspelt")
    assert [states(document)[name] for name in ("environment.misspelt", "devices.mode")] == ["warn", "warn"]
    assert document["environment"]["CUDA_VISIBLE_DIVICES"] == "1"
    assert "mode.exclusive" in [found["id"] for found in document["findings"]]


class Looked:
    """One real look at a healthy machine, judged again with another driver or card."""

    def __init__(self, machine: SimMachine) -> None:
        environment = machine.environment(os.environ)
        interpreter = choose_interpreter("tensorflow", sys.executable)
        kept = dict(os.environ)
        os.environ.update(environment)
        feed = LiveFeed(0.25)
        feed.start()
        try:
            self.before: Snapshot = feed.wait(1, 10.0)[-1]
        finally:
            feed.stop()
            os.environ.clear()
            os.environ.update(kept)
        self.draft: RunDraft
        self.draft, tried = run_framework_check(interpreter, environment, {}, self.before)
        self.look = with_opened_libraries(inspect_interpreter(interpreter, environment), tried)

    def again(self, before: Snapshot) -> tuple[Run, str | None, dict[str, str]]:
        run = complete(self.draft.run, self.draft.log, before)
        facts = Facts(snapshot=before, installation=self.look, run=run, log=self.draft.log, simulated=True)
        document = build_document(facts, NOW, 0.0)
        return run, document.primary, {check.id: check.state for check in document.checks}


@pytest.fixture(scope="module")
def looked() -> Any:
    machine = SimMachine.open(SimShape.parse("1x2GiB"), name=f"test-doctor-{os.getpid()}")
    yield Looked(machine)
    machine.remove()


def card(before: Snapshot, capability: str) -> Snapshot:
    return replace(before, devices=(replace(before.devices[0], compute_capability=capability),))


def exclusive(before: Snapshot) -> Snapshot:
    device = before.devices[0]
    readings = {**device.readings, "mode.compute": "exclusive-process"}
    return replace(before, devices=(replace(device, readings=readings),))


CHANGES: list[tuple[str, Callable[[Snapshot], Snapshot], str, str, str]] = [
    ("as it is", lambda before: before, "healthy", "framework.capability", "pass"),
    ("old card", partial(card, capability="5.2"), "build.gpu-unsupported", "framework.capability", "fail"),
    ("new card", partial(card, capability="12.0"), "build.gpu-unsupported", "framework.capability", "warn"),
    ("exclusive", exclusive, "mode.exclusive", "devices.mode", "warn"),
    (
        "old driver",
        lambda before: replace(before, driver=replace(before.driver, cuda_version="11.4")),
        "driver.too-old",
        "framework.cuda-version",
        "fail",
    ),
]


@pytest.mark.parametrize(
    ("change", "cause", "check", "state"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES]
)
def test_compatibility_of_a_real_run(
    looked: Looked, change: Callable[[Snapshot], Snapshot], cause: str, check: str, state: str
) -> None:
    """The simulated card and driver have one capability and version, so these two are told to the rules."""
    run, primary, found = looked.again(change(looked.before))
    assert (primary, found[check]) == (cause, state)
    assert run.primary == cause, "a probe is judged by the same rules"
