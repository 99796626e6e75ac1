"""``gpuwatch sim``: run any command on simulated GPUs."""

from __future__ import annotations

import os
import shutil

import click

from gpuwatch.cli.completion import files
from gpuwatch.cli.options import asked_shape, sim_option, simulated_environment
from gpuwatch.errors import GpuwatchError, UsageError


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--gpus", type=click.IntRange(1, 16), default=2, show_default=True, help="How many GPUs.")
@click.option("--memory", metavar="SIZE", default="24GiB", show_default=True, help="Memory of each.")
@click.option(
    "--tier",
    type=click.Choice(["auto", "driver", "plugin"]),
    default="auto",
    show_default=True,
    help="plugin computes; driver has CUDA's own log lines and computes matrix products alone.",
)
@sim_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...", shell_complete=files)
@click.pass_context
def sim(ctx: click.Context, gpus: int, memory: str, tier: str, command: tuple[str, ...]) -> None:
    """Run COMMAND on simulated GPUs.

    It gets libraries that simulate NVIDIA's, so that TensorFlow, nvitop, gpustat and gpuwatch itself
    find GPUs on a machine that has none. Commands that run under the same --gpus and --memory see
    the same devices. On GPUs that compute (plugin) Keras needs jit_compile=False: XLA knows none.
    """
    from gpuwatch.sim.shape import SimShape

    if not command:
        raise UsageError("no command to run", hint="for example: gpuwatch sim -- python train.py")
    shape = asked_shape(ctx) or SimShape.parse(f"{gpus}x{memory}")
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(f"{command[0]}: there is no such program")
    environment = simulated_environment(shape, tier)
    try:
        os.execve(program, list(command), environment)
    except OSError as error:
        raise GpuwatchError(f"{command[0]} cannot be started: {error.strerror}") from error
