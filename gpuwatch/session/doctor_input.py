"""Gathers everything that ``gpuwatch doctor`` examines, each part with a deadline."""

from __future__ import annotations

import datetime
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.model.doctor import Doctor, FrameworkFacts
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.experiment.probing import interpreter_checks as checks
from gpuwatch.experiment.probing.interpreter import FrameworkMissing, Interpreter, choose_interpreter
from gpuwatch.explain.diagnosis.doctor.check import Facts
from gpuwatch.explain.diagnosis.evidence import NO_LOG
from gpuwatch.explain.diagnosis.rules.gpu_environment_variables import gpu_variables
from gpuwatch.machine.sources.system_and_driver_facts import read_system_facts
from gpuwatch.session.snapshots import take_samples
from gpuwatch.sim.simulated_machine import SimMachine

T = TypeVar("T")


def examine_machine(python: str | None, framework: str | None, progress: Callable[[str], None]) -> Doctor:
    """The doctor's document; ``progress`` is called with each step, and with the empty string at the end."""
    from gpuwatch.explain.diagnosis.doctor.doctor_document import build_document
    from gpuwatch.explain.diagnosis.runs.finished_run import complete

    taken_at, started = datetime.datetime.now(datetime.UTC), time.monotonic()
    stored_environment = gpu_variables(os.environ)
    interpreter, why_missing = _find_interpreter(python, framework)
    progress("reading GPUs and driver")
    snapshot = _snapshot()
    system_facts = result_within(checks.DRIVER_SECONDS, lambda: read_system_facts(os.environ))
    child_environment = checks.child_environment(os.environ, interpreter)
    driver = checks.ask_driver(checks.child_environment(os.environ, None))
    run, log = None, NO_LOG
    inspected = FrameworkFacts(name=framework or "tensorflow", missing=why_missing)
    if interpreter is not None:
        progress("searching for the framework's libraries")
        inspected = checks.inspect_interpreter(interpreter, child_environment)
        progress(f"importing {interpreter.framework} and running an op on each device")
        draft, checked = checks.run_framework_check(interpreter, child_environment, stored_environment, snapshot)
        inspected = checks.with_opened_libraries(inspected, checked)
        run, log = complete(draft.run, draft.log, draft.before), draft.log
    progress("")
    facts = Facts(
        system=system_facts,
        driver=driver,
        snapshot=snapshot,
        environment=stored_environment,
        installation=inspected,
        run=run,
        log=log,
        simulated=SimMachine.from_environment(os.environ) is not None,
        named_by_user=python is not None or framework is not None,
        deadline=checks.DRIVER_SECONDS,
    )
    return build_document(facts, taken_at, time.monotonic() - started)


def result_within(seconds: float, work: Callable[[], T]) -> T | None:
    """The result of ``work``, or None if it takes longer than ``seconds``: a hanging file system must not block us."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    return results[0] if results else None


def _find_interpreter(python: str | None, framework: str | None) -> tuple[Interpreter | None, str]:
    """The interpreter, or why none was found; :class:`UsageError` for one that cannot be run."""
    message = ""
    for name in (framework,) if framework is not None else ("tensorflow", "torch"):
        try:
            return choose_interpreter(name, python), ""
        except FrameworkMissing as error:
            message = message or error.message
    return None, message


def _snapshot() -> Snapshot | None:
    """The machine before anything is started; None if the driver does not answer in time."""
    snapshots, silence = take_samples(1, checks.DRIVER_SECONDS + checks.INTERPRETER_START_SECONDS)
    if not snapshots and silence.failure:
        message, _, hint = silence.failure.partition("; ")
        raise GpuwatchError(message, hint=hint)
    return snapshots[-1] if snapshots else None
