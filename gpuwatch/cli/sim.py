"""``gpuwatch sim``: run any command on simulated GPUs; ``gpuwatch sim fault``: let them have faults."""

from __future__ import annotations

import errno
import os
import shutil

import click
from click.core import ParameterSource

from gpuwatch.cli.choice import Choice
from gpuwatch.cli.completion import files
from gpuwatch.cli.fault import fault
from gpuwatch.cli.options import asked_shape, sim_option, simulated_environment
from gpuwatch.errors import GpuwatchError, UsageError

_BEHIND_DASHES = "gpuwatch.sim.behind-dashes"


class _Sim(click.Group):
    """Any command, and ``fault``; a program of that name is run as ``-- fault``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        rest = super().parse_args(ctx, args)
        # What is behind the options and the dashes stands at the end, as it was.
        command = [*getattr(ctx, "_protected_args", ()), *ctx.args]
        ctx.meta[_BEHIND_DASHES] = len(given) > len(command) and given[-len(command) - 1] == "--"
        return rest

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands and not ctx.meta.get(_BEHIND_DASHES):
            return super().resolve_command(ctx, args)
        return "program", _program, args


@click.command(hidden=True, add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, shell_complete=files)
@click.pass_context
def _program(ctx: click.Context, command: tuple[str, ...]) -> None:
    """Runs a program on the GPUs that the options before it ask for."""
    from gpuwatch.sim.shape import SimShape

    options = ctx.obj
    shape = asked_shape(ctx) or SimShape.parse(f"{options['gpus']}x{options['memory']}")
    program = shutil.which(command[0])
    if program is None:
        from gpuwatch.probing.ending import not_started

        raise not_started(command[0], errno.EACCES if shutil.which(command[0], mode=os.F_OK) else errno.ENOENT)
    environment = _without_compiler(simulated_environment(shape, options["tier"], hold=True))
    try:
        os.execve(program, list(command), environment)
    except OSError as error:
        raise GpuwatchError(f"{command[0]} cannot be started: {error.strerror}") from error


def _without_compiler(environment: dict[str, str]) -> dict[str, str]:
    """On GPUs that compute, every Python keeps Keras from XLA (probes/_gpuwatch_watch/_gpuwatch_simulated.py)."""
    from gpuwatch.probing.locate import probe_folder
    from gpuwatch.sim.environment import ENV_PLUGIN

    if ENV_PLUGIN in environment:
        hook = str(probe_folder() / "_gpuwatch_watch")
        others = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", hook)]
        environment["PYTHONPATH"] = os.pathsep.join([hook, *others])
    return environment


@click.group(
    cls=_Sim,
    invoke_without_command=True,
    subcommand_metavar="-- COMMAND... | fault FAULT...",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--gpus", type=click.IntRange(1, 16), default=2, show_default=True, help="How many GPUs.")
@click.option("--memory", metavar="SIZE", default="24GiB", show_default=True, help="Memory of each.")
@click.option(
    "--tier",
    type=Choice(["auto", "driver", "plugin"]),
    default="auto",
    show_default=True,
    help="plugin computes; driver has CUDA's own log lines and computes matrix products alone.",
)
@sim_option
@click.pass_context
def sim(ctx: click.Context, gpus: int, memory: str, tier: str) -> None:
    """Run COMMAND on simulated GPUs.

    It gets libraries that simulate NVIDIA's, so that TensorFlow, nvitop, gpustat and gpuwatch itself
    find GPUs on a machine that has none. Commands that run under the same --gpus and --memory see
    the same devices. XLA knows no GPU that computes here (plugin): what Keras would compile by itself is
    left uncompiled, and a line says so; a tf.function with jit_compile=True fails.
    """
    if ctx.invoked_subcommand is None and not ctx.args:
        raise UsageError("no command to run", hint="for example: gpuwatch sim -- python train.py")
    given = [name for name in ("gpus", "memory") if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given and asked_shape(ctx) is not None:
        raise UsageError(f"--sim and --{given[0]} both say which GPUs", hint="use one of them")
    ctx.obj = {"gpus": gpus, "memory": memory, "tier": tier}


sim.add_command(fault)
