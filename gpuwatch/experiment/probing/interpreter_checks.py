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
from gpuwatch.core.model.probe_events import Event, decode_event
from gpuwatch.core.model.run import DeviceMapping, Outcome
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.experiment.probing.interpreter import Interpreter
from gpuwatch.experiment.probing.probe_process import Launch, ProbeProcess, launch_fresh
from gpuwatch.experiment.probing.probe_runner import LOG_ENVIRONMENT
from gpuwatch.experiment.probing.probe_scripts import ProbeScript, probe_folder
from gpuwatch.experiment.probing.received_events import described_device
from gpuwatch.experiment.probing.run_draft import RunBuilder, RunDraft
from gpuwatch.experiment.probing.simulation_tier import pytorch_obstacle
from gpuwatch.sim.environment import ENV_PLUGIN
from gpuwatch.sim.simulated_machine import SimMachine
from gpuwatch.sim.simulated_sysfs import ENV_STATE

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
    heard: dict[str, Any] = {}
    calling = ""

    def take(event: Event) -> None:
        nonlocal calling
        if event.kind == "calling":
            calling = str(event.data["name"])
        elif event.kind == "answer":
            heard.update(event.data)

    launch = _launch(sys.executable, environment, "driver")
    outcome, output = _run(launch, DRIVER_SECONDS + INTERPRETER_START_SECONDS, take)
    for name in ("libcuda", "nvml"):
        if name in heard:
            heard[name] = msgspec.convert(heard[name], LoadedLibrary)
    return DriverAnswer(**heard, late=calling if outcome.timed_out else "", problem=_ending(outcome, output, calling))


def inspect_interpreter(
    interpreter: Interpreter, environment: Mapping[str, str], deadline: float = LIBRARY_SEARCH_SECONDS
) -> FrameworkFacts:
    """Finds distributions and libraries without importing the framework."""
    distributions: tuple[Distribution, ...] | None = None
    libraries: tuple[Library, ...] | None = None

    def take(event: Event) -> None:
        nonlocal distributions, libraries
        if event.kind == "distributions":
            distributions = msgspec.convert(event.data["found"], tuple[Distribution, ...])
        elif event.kind == "wanted":
            libraries = ()
        elif event.kind == "library":
            libraries = (*(libraries or ()), msgspec.convert(event.data, Library))

    launch = _launch(interpreter.path, environment, "look", interpreter.framework)
    outcome, output = _run(launch, deadline, take)
    problem = _ending(outcome, output, "looking for libraries")
    late = "the list of distributions" if distributions is None else "the search for libraries"
    return FrameworkFacts(
        name=interpreter.framework,
        interpreter=interpreter.path,
        gpu_build=interpreter.gpu_build,
        distributions=distributions,
        libraries=libraries,
        search_late=late if outcome.timed_out else "",
        problems=(problem,) if problem else (),
    )


def try_framework(
    interpreter: Interpreter,
    environment: Mapping[str, str],
    kept: dict[str, str],
    before: Snapshot | None,
) -> tuple[RunDraft, FrameworkFacts]:
    """Imports the framework in a child process, lists its devices and runs one op on each.

    ``kept``: the environment to store in the run: the user's, without the variables set here for logging.
    """
    started_at, started = datetime.datetime.now(datetime.UTC), time.monotonic()
    builder = RunBuilder(started, before)
    tests: list[DeviceTest] = []
    opened: list[str] | None = None
    logged: dict[str, None] = {}
    described: list[DeviceMapping] = []
    doing = f"import {interpreter.framework}"

    def take(raw: bytes) -> None:
        nonlocal doing, opened
        event = builder.event_line(raw)
        if event is None:
            return
        data = event.data
        if event.kind == "framework":
            doing = "starting its devices"
        elif event.kind == "opened":
            opened = list(data["files"])
        elif event.kind == "described":
            ordinal = int(data["ordinal"])
            described.append(described_device(f"/device:GPU:{ordinal}", ordinal, data))
        elif event.kind == "trying":
            doing = f"one op on {data['device'] or 'the default device'}"
        elif event.kind == "tried":
            tests.append(msgspec.convert(data, DeviceTest))

    def read(raw: bytes) -> None:
        if (match := _OPENED.search(raw)) is not None:
            logged[match[1].decode("utf-8", "replace")] = None
        builder.log_line(raw)

    # The script enables memory growth itself: a check must not take all memory of a shared GPU.
    child = {name: value for name, value in environment.items() if name != "TF_FORCE_GPU_ALLOW_GROWTH"}
    launch = _launch(interpreter.path, child | LOG_ENVIRONMENT, "framework", interpreter.framework)
    with ProbeProcess(launch, on_event=take, on_log=read) as process:
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
    draft = builder.finish(
        script,
        outcome,
        started_at=started_at,
        total_seconds=time.monotonic() - started,
        fresh=True,
        environment=kept,
        simulation="driver" if interpreter.framework == "tensorflow" or ENV_STATE in environment else None,
    )
    if described:
        run = msgspec.structs.replace(draft.run, device_map=tuple(described))
        draft = msgspec.structs.replace(draft, run=run)
    libraries = None
    if opened is not None:
        files = (Library(name=path, state="loaded", path=path) for path in opened)
        libraries = (*files, *(Library(name=name, state="loaded") for name in logged))
    look = FrameworkFacts(
        name=interpreter.framework,
        interpreter=interpreter.path,
        gpu_build=interpreter.gpu_build,
        tests=tuple(tests),
        libraries=libraries,
        import_seconds=draft.run.phases.import_seconds,
        late=doing if outcome.timed_out else "",
        problems=draft.run.problems,
    )
    return draft, look


def with_opened_libraries(look: FrameworkFacts, tried: FrameworkFacts) -> FrameworkFacts:
    """The libraries that were found, with what the framework itself opened, and the rest of ``tried``."""
    replace = msgspec.structs.replace
    libraries = look.libraries
    if libraries is not None and tried.libraries is not None:
        opened = {name for library in tried.libraries for name in (library.path, library.name)}
        libraries = tuple(
            replace(library, opened=library.path in opened or library.name in opened) if library.path else library
            for library in libraries
        )
    return replace(
        look,
        libraries=libraries,
        tests=tried.tests,
        import_seconds=tried.import_seconds,
        late=tried.late,
        problems=(*look.problems, *tried.problems),
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


def _launch(python: str, environment: Mapping[str, str], *part: str) -> Launch:
    command = [python, "-u", str(probe_folder() / _SCRIPT), *part]
    return launch_fresh(command, {**environment, "PYTHONDONTWRITEBYTECODE": "1"})


def _run(launch: Launch, deadline: float, take: Callable[[Event], None]) -> tuple[Outcome, list[str]]:
    """Runs one part of the script; how it ended, and its last lines of output."""
    output: list[str] = []

    def on_event(raw: bytes) -> None:
        event = decode_event(raw)
        if isinstance(event, Event):
            take(event)
        else:
            output.append(f"broken event: {event.problem}")

    def on_log(raw: bytes) -> None:
        output.append(raw.decode("utf-8", "replace"))
        del output[:-_LAST_LINES]

    with ProbeProcess(launch, on_event=on_event, on_log=on_log) as process:
        return process.run_to_end(deadline), output


def _ending(outcome: Outcome, output: list[str], doing: str) -> str:
    if outcome.timed_out or outcome.exit_code == 0:
        return ""
    how = f"signal {outcome.signal}" if outcome.signal is not None else f"exit code {outcome.exit_code}"
    last = next((line.strip() for line in reversed(output) if line.strip()), "")
    return f"the child process ended with {how} during {doing}" + (f": {last}" if last else "")
