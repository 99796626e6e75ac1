"""``gpuwatch doctor``: will the framework find the GPUs of this machine, in this environment?"""

from __future__ import annotations

from pathlib import Path

import click

from gpuwatch.cli.choice import Choice
from gpuwatch.cli.completion import files
from gpuwatch.cli.options import enter_simulation, progress, sim_option
from gpuwatch.cli.output import check_output, output_option, publish, redact_option
from gpuwatch.errors import EXIT_FINDING, EXIT_OK
from gpuwatch.model.doctor import Doctor
from gpuwatch.probing.interpreter import program_of
from gpuwatch.session.doctor import examined


@click.command()
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout (gpuwatch.doctor/1).")
@click.option("--python", metavar="PATH", shell_complete=files, help="Interpreter in which the framework is installed.")
@click.option(
    "--framework",
    type=Choice(["tensorflow", "torch"]),
    help="Framework to check (default: TensorFlow, else PyTorch).",
)
@output_option
@redact_option
@sim_option
@click.pass_context
def doctor(
    ctx: click.Context, as_json: bool, python: str | None, framework: str | None, output: Path | None, redact: bool
) -> None:
    """Check driver, devices, environment and framework, and name the cause if GPUs cannot be used.

    The framework is imported in a separate process and runs one small op on each GPU.
    """
    check_output(output)
    if python is not None:
        program_of(python)
    enter_simulation(ctx)
    document = examined(python, framework, progress)
    publish(document, output, as_json=as_json, redact=redact)
    ctx.exit(EXIT_FINDING if _bad(document) else EXIT_OK)


def _bad(document: Doctor) -> bool:
    """Whether something keeps the framework from using its GPUs; a framework that is not installed has none."""
    absent = any(entry.id == "framework.interpreter" and entry.state == "fail" for entry in document.checks)
    return absent or any(found.severity == "error" for found in document.findings)
