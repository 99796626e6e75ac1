"""The doctor's checks in the user's interpreter, each in a child process with a deadline.

The script is ``probes/_gpuwatch_doctor_checks.py``. Its framework check is recorded like a probe's run, so that the
same rules judge it.
"""

from __future__ import annotations

import datetime
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gpuwatch.core.model.doctor import DeviceTest, Distribution, DriverAnswer, FrameworkFacts, Library, LoadedLibrary
from gpuwatch.core.model.probes import Event, decode_event
from gpuwatch.core.model.run import DeviceMapping, Outcome
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.experiment.probing.device_maps import described_device
from gpuwatch.experiment.probing.interpreter import Interpreter
from gpuwatch.experiment.probing.probe_process import Launch, ProbeProcess, launch_fresh
from gpuwatch.experiment.probing.probe_runner import LOG_ENVIRONMENT
from gpuwatch.experiment.probing.probe_scripts import ProbeScript, probe_folder
from gpuwatch.experiment.probing.run_draft import RunDraft, RunDraftBuilder
from gpuwatch.experiment.probing.simulation_tier import pytorch_obstacle
from gpuwatch.sim.environment import ENV_PLUGIN, ENV_STATE
from gpuwatch.sim.simulated_machine import SimMachine

DRIVER_SECONDS = 3.0
"""Seconds the driver has to answer."""
INTERPRETER_START_SECONDS = 2.0
"""Seconds added for the start of an interpreter on a busy machine."""
LIBRARY_SEARCH_SECONDS = 15.0
"""Seconds to open every library: a cold disk is slow, and cuBLAS alone has 500 MB."""
FRAMEWORK_SECONDS = 60.0
"""Seconds to import the framework, start its devices and run one op on each."""
_SCRIPT = "_gpuwatch_doctor_checks.py"
_CONFIG = "doctor"
_LAST_LINES = 3
_OPENED = re.compile(rb"Successfully opened dynamic library (\S+)")
"""Logged by TensorFlow (dso_loader.cc). Needed for libraries that it has closed again: they are no longer mapped."""


def ask_driver(environment: Mapping[str, str]) -> DriverAnswer:
    """Loads and initializes libcuda and NVML in a child process."""
    answers: dict[str, Any] = {}
    current_call = ""

    def take_event(event: Event) -> None:
        nonlocal current_call
        if event.kind == "calling":
            current_call = str(event.data["name"])
        elif event.kind == "answer":
            answers.update(event.data)

    launch = _part_launch(sys.executable, environment, "driver")
    outcome, output = _run_part(launch, DRIVER_SECONDS + INTERPRETER_START_SECONDS, take_event)
    for name in ("libcuda", "nvml"):
        if name in answers:
            answers[name] = msgspec.convert(answers[name], LoadedLibrary)
    problem = _failure_text(outcome, output, current_call)
    return DriverAnswer(
        **answers,
        late=current_call if outcome.timed_out else "",
        ended_in=current_call if problem else "",
        problem=problem,
    )


def inspect_interpreter(
    interpreter: Interpreter, environment: Mapping[str, str], deadline: float = LIBRARY_SEARCH_SECONDS
) -> FrameworkFacts:
    """Finds distributions and libraries without importing the framework."""
    distributions: tuple[Distribution, ...] | None = None
    libraries: tuple[Library, ...] | None = None

    def take_event(event: Event) -> None:
        nonlocal distributions, libraries
        if event.kind == "distributions":
            distributions = msgspec.convert(event.data["found"], tuple[Distribution, ...])
        elif event.kind == "wanted":
            libraries = ()
        elif event.kind == "library":
            libraries = (*(libraries or ()), msgspec.convert(event.data, Library))

    launch = _part_launch(interpreter.path, environment, "look", interpreter.framework)
    outcome, output = _run_part(launch, deadline, take_event)
    problem = _failure_text(outcome, output, "looking for libraries")
    unfinished_search = "the list of distributions" if distributions is None else "the search for libraries"
    return FrameworkFacts(
        name=interpreter.framework,
        interpreter=interpreter.path,
        gpu_build=interpreter.gpu_build,
        distributions=distributions,
        libraries=libraries,
        search_late=unfinished_search if outcome.timed_out else "",
        problems=(problem,) if problem else (),
    )


def run_framework_check(
    interpreter: Interpreter,
    environment: Mapping[str, str],
    stored_environment: dict[str, str],
    before: Snapshot | None,
) -> tuple[RunDraft, FrameworkFacts]:
    """Imports the framework in a child process, lists its devices and runs one op on each.

    ``stored_environment``: the environment to store in the run: the user's, without the variables set here for logging.
    """
    started_at, started = datetime.datetime.now(datetime.UTC), time.monotonic()
    builder = RunDraftBuilder(started, before)
    tests: list[DeviceTest] = []
    opened_files: list[str] | None = None
    logged_libraries: dict[str, None] = {}
    described_devices: list[DeviceMapping] = []
    current_step = f"import {interpreter.framework}"

    def take_event_line(raw: bytes) -> None:
        nonlocal current_step, opened_files
        event = builder.take_event_line(raw)
        if event is None:
            return
        data = event.data
        if event.kind == "framework":
            current_step = "starting its devices"
        elif event.kind == "opened":
            opened_files = list(data["files"])
        elif event.kind == "described":
            ordinal = int(data["ordinal"])
            described_devices.append(described_device(f"/device:GPU:{ordinal}", ordinal, data))
        elif event.kind == "trying":
            current_step = f"one op on {data['device'] or 'the default device'}"
        elif event.kind == "tried":
            tests.append(msgspec.convert(data, DeviceTest))

    def take_log_line(raw: bytes) -> None:
        if (match := _OPENED.search(raw)) is not None:
            logged_libraries[match[1].decode("utf-8", "replace")] = None
        builder.take_log_line(raw)

    # The script enables memory growth itself: a check must not take all memory of a shared GPU.
    child_variables = {name: value for name, value in environment.items() if name != "TF_FORCE_GPU_ALLOW_GROWTH"}
    launch = _part_launch(interpreter.path, child_variables | LOG_ENVIRONMENT, "framework", interpreter.framework)
    with ProbeProcess(launch, on_event=take_event_line, on_log=take_log_line) as process:
        builder.pid = process.pid
        outcome = process.run_to_end(FRAMEWORK_SECONDS)
    script = ProbeScript(
        name=_CONFIG,
        title="One op on every device",
        group="placement",
        framework=interpreter.framework,
        workload="matmul",
        path=probe_folder() / _SCRIPT,
    )
    draft = builder.build(
        script,
        outcome,
        started_at=started_at,
        total_seconds=time.monotonic() - started,
        fresh=True,
        environment=stored_environment,
        simulation="driver" if interpreter.framework == "tensorflow" or ENV_STATE in environment else None,
    )
    if described_devices:
        run = msgspec.structs.replace(draft.run, device_map=tuple(described_devices))
        draft = msgspec.structs.replace(draft, run=run)
    libraries = None
    if opened_files is not None:
        file_libraries = (Library(name=path, state="loaded", path=path) for path in opened_files)
        libraries = (*file_libraries, *(Library(name=name, state="loaded") for name in logged_libraries))
    facts = FrameworkFacts(
        name=interpreter.framework,
        interpreter=interpreter.path,
        gpu_build=interpreter.gpu_build,
        tests=tuple(tests),
        libraries=libraries,
        import_seconds=draft.run.phases.import_seconds,
        late=current_step if outcome.timed_out else "",
        problems=draft.run.problems,
    )
    return draft, facts


def with_opened_libraries(inspected: FrameworkFacts, checked: FrameworkFacts) -> FrameworkFacts:
    """The libraries that were found, with what the framework itself opened, and the rest of ``checked``."""
    replace = msgspec.structs.replace
    libraries = inspected.libraries
    if libraries is not None and checked.libraries is not None:
        opened_names = {name for library in checked.libraries for name in (library.path, library.name)}
        libraries = tuple(
            replace(library, opened=library.path in opened_names or library.name in opened_names)
            if library.path
            else library
            for library in libraries
        )
    return replace(
        inspected,
        libraries=libraries,
        tests=checked.tests,
        import_seconds=checked.import_seconds,
        late=checked.late,
        problems=(*inspected.problems, *checked.problems),
    )


def child_environment(environment: Mapping[str, str], interpreter: Interpreter | None) -> dict[str, str]:
    """The user's environment. Simulated GPUs are presented as a driver, and hidden from PyTorch builds without them."""
    machine = SimMachine.from_environment(environment)
    if machine is None:
        return dict(environment)
    if interpreter is not None and interpreter.framework == "torch" and pytorch_obstacle(interpreter):
        return machine.stripped(environment)
    if ENV_PLUGIN in environment:
        return machine.environment(environment, tier="driver")
    return dict(environment)  # unchanged: libraries may be missing from it on purpose


def _part_launch(python: str, environment: Mapping[str, str], *part: str) -> Launch:
    command = [python, "-u", str(probe_folder() / _SCRIPT), *part]
    return launch_fresh(command, {**environment, "PYTHONDONTWRITEBYTECODE": "1"})


def _run_part(launch: Launch, deadline: float, take_event: Callable[[Event], None]) -> tuple[Outcome, list[str]]:
    """Runs one part of the script; how it ended, and its last lines of output."""
    last_lines: list[str] = []

    def on_event(raw: bytes) -> None:
        event = decode_event(raw)
        if isinstance(event, Event):
            take_event(event)
        else:
            last_lines.append(f"broken event: {event.problem}")

    def on_log(raw: bytes) -> None:
        last_lines.append(raw.decode("utf-8", "replace"))
        del last_lines[:-_LAST_LINES]

    with ProbeProcess(launch, on_event=on_event, on_log=on_log) as process:
        return process.run_to_end(deadline), last_lines


def _failure_text(outcome: Outcome, last_lines: list[str], current_step: str) -> str:
    if outcome.timed_out or outcome.exit_code == 0:
        return ""
    end_text = f"signal {outcome.signal}" if outcome.signal is not None else f"exit code {outcome.exit_code}"
    last_line = next((line.strip() for line in reversed(last_lines) if line.strip()), "")
    return f"the child process ended with {end_text} during {current_step}" + (f": {last_line}" if last_line else "")
