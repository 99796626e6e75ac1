"""``gpuwatch doctor``: will the framework find the GPUs of this machine, in this environment?"""

from __future__ import annotations

import click

from gpuwatch.cli.output import Output, output_options
from gpuwatch.cli.progress import progress
from gpuwatch.cli.run_on_nodes import NodeCommand, nodes_options, run_on_nodes
from gpuwatch.cli.shared_options import framework_option, python_option
from gpuwatch.cli.sim_options import enter_simulation, offer_simulation, sim_option
from gpuwatch.core.errors import EXIT_FINDING, EXIT_OK
from gpuwatch.experiment.probing.interpreter import resolve_python
from gpuwatch.session.doctor_input import examine_machine

_EXAMPLES = """\b
Examples:
  gpuwatch doctor
  gpuwatch doctor --python ~/venv/bin/python --framework torch
  gpuwatch doctor --on slurm:gpu
"""


@click.command(cls=NodeCommand, epilog=_EXAMPLES)
@python_option
@framework_option
@output_options("Print JSON (gpuwatch.doctor/1).")
@nodes_options
@sim_option
@click.pass_context
def doctor(ctx: click.Context, python: str | None, framework: str | None, output: Output) -> None:
    """Check whether TensorFlow or PyTorch can use the GPUs here.

    Checks the driver, devices, environment and framework, and names the cause if the GPUs cannot be used. The framework
    is imported in a separate process and runs one small op on each GPU. Exits with 3 if it cannot use them.
    """
    run_on_nodes(ctx, output)
    if python is not None:
        resolve_python(python)
    enter_simulation(ctx)
    document = examine_machine(python, framework, progress)
    output.publish(document)
    offer_simulation(ctx)
    framework_missing = any(check.id == "framework.interpreter" and check.state == "fail" for check in document.checks)
    unusable = framework_missing or any(found.severity == "error" for found in document.findings)
    ctx.exit(EXIT_FINDING if unusable else EXIT_OK)
