"""``gpuwatch doctor``: will the framework find the GPUs of this machine, in this environment?"""

from __future__ import annotations

import datetime
import os
import sys
import time
from pathlib import Path

import click

from gpuwatch.cli.choice import Choice
from gpuwatch.cli.completion import files
from gpuwatch.cli.options import enter_simulation, progress_wanted, sim_option
from gpuwatch.cli.output import check_output, output_option, publish, redact_option
from gpuwatch.diagnosis.doctor.facts import Facts, relevant
from gpuwatch.errors import EXIT_FINDING, EXIT_OK
from gpuwatch.model.doctor import Doctor, FrameworkLook
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.monitor.collector import Collector
from gpuwatch.probing import environment as looking
from gpuwatch.probing.interpreter import FrameworkMissing, Interpreter, choose_interpreter
from gpuwatch.sim.machine import SimMachine
from gpuwatch.sources import system

_SAMPLE_SECONDS = 0.25


@click.command()
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout (gpuwatch.doctor/1).")
@click.option("--python", metavar="PATH", shell_complete=files, help="Interpreter in which the framework is installed.")
@click.option(
    "--framework",
    type=Choice(["tensorflow", "torch"]),
    help="Which framework to look at (default: TensorFlow, else PyTorch).",
)
@output_option
@redact_option
@sim_option
@click.pass_context
def doctor(
    ctx: click.Context, as_json: bool, python: str | None, framework: str | None, output: Path | None, redact: bool
) -> None:
    """Check driver, devices, environment and framework, and name the one cause that keeps GPUs away.

    The framework is imported in a process of its own and runs one small op on each GPU.
    """
    check_output(output)
    enter_simulation(ctx)
    document = examined(python, framework)
    publish(document, output, as_json=as_json, redact=redact)
    ctx.exit(EXIT_FINDING if _bad(document) else EXIT_OK)


def _bad(document: Doctor) -> bool:
    """Whether something keeps the framework from its GPUs; one that is not installed has none."""
    absent = any(entry.id == "framework.interpreter" and entry.state == "fail" for entry in document.checks)
    return absent or any(found.severity == "error" for found in document.findings)


def examined(python: str | None, framework: str | None) -> Doctor:
    """Looks at everything, one thing after another, each with its deadline."""
    from gpuwatch.diagnosis.complete import complete
    from gpuwatch.diagnosis.doctor.examine import examine

    taken_at, started = datetime.datetime.now(datetime.UTC), time.monotonic()
    kept = relevant(os.environ)
    interpreter, missing = _interpreter(python, framework)
    _say("the machine")
    snapshot = _snapshot()
    files = system.within(looking.DEADLINE, lambda: system.look(os.environ))
    child = looking.child_environment(os.environ, interpreter.framework if interpreter is not None else None)
    driver = looking.ask_driver(looking.child_environment(os.environ, "tensorflow"))
    run = log = None
    look = FrameworkLook(name=framework or "tensorflow", missing=missing)
    if interpreter is not None:
        _say("the framework's libraries")
        look = looking.look_into(interpreter, child)
        _say(f"importing {interpreter.framework}, one op on each device")
        observed, tried = looking.try_framework(interpreter, child, kept, snapshot)
        look = looking.joined(look, tried)
        run, log = complete(observed.run, observed.log, observed.before), observed.log
    _say("")
    facts = Facts(
        system=files,
        driver=driver,
        snapshot=snapshot,
        environment=kept,
        look=look,
        run=run,
        log=log,
        simulated=SimMachine.from_environment(os.environ) is not None,
        asked=python is not None or framework is not None,
        deadline=looking.DEADLINE,
    )
    return examine(facts, taken_at, time.monotonic() - started)


def _interpreter(python: str | None, framework: str | None) -> tuple[Interpreter | None, str]:
    """The interpreter, or why there is none. What cannot be run at all is a usage error."""
    message = ""
    for name in (framework,) if framework is not None else ("tensorflow", "torch"):
        try:
            return choose_interpreter(name, python), ""
        except FrameworkMissing as error:
            message = message or error.message
    return None, message


def _snapshot() -> Snapshot | None:
    """The machine before anything is started; None where the driver does not answer in time."""
    collector = Collector(_SAMPLE_SECONDS)
    collector.start()
    try:
        taken = collector.wait(1, looking.DEADLINE + looking.START)
    finally:
        collector.stop()
    return taken[-1] if taken else None


def _say(doing: str) -> None:
    """Progress on a terminal, nothing in a pipe."""
    if progress_wanted():
        sys.stderr.write("\r\x1b[K" + (f"looking at {doing} …" if doing else ""))
        sys.stderr.flush()
