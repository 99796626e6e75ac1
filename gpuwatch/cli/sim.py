"""``gpuwatch sim``: runs a command on simulated GPUs; ``gpuwatch sim fault``: injects faults."""

from __future__ import annotations

import click
from click.core import ParameterSource

from gpuwatch.cli.command_classes import LazyCommand, LazyGroup
from gpuwatch.cli.completion import complete_files
from gpuwatch.cli.replace_process import program_path, replace_process
from gpuwatch.cli.sim_options import shape_option_value, sim_option, sim_tier_option
from gpuwatch.core.errors import UsageError

_AFTER_DOUBLE_DASH_KEY = "gpuwatch.sim.after-double-dash"


class _Sim(LazyGroup):
    """Any program, or ``fault``; a program of that name is run as ``-- fault``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        rest = super().parse_args(ctx, args)
        # Everything after the options and the dashes is at the end, unchanged.
        command = [*getattr(ctx, "_protected_args", ()), *ctx.args]
        ctx.meta[_AFTER_DOUBLE_DASH_KEY] = len(given) > len(command) and given[-len(command) - 1] == "--"
        return rest

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.lazy and not ctx.meta.get(_AFTER_DOUBLE_DASH_KEY):
            return super().resolve_command(ctx, args)
        return "program", _run_program, args


@click.command(hidden=True, add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, shell_complete=complete_files)
@click.pass_context
def _run_program(ctx: click.Context, command: tuple[str, ...]) -> None:
    """Runs a program on the GPUs given by the options before it."""
    from gpuwatch.sim.machine_shape import SimShape

    options = ctx.obj
    shape = shape_option_value(ctx) or SimShape.parse(f"{options['gpus']}x{options['memory']}")
    replace_process(ctx, program_path(command[0]), command, shape, options["tier"])


_EXAMPLES = """\b
Examples:
  gpuwatch sim -- nvitop
  gpuwatch sim --gpus 4 --memory 80GiB -- python train.py
  gpuwatch sim fault lost 1
"""


@click.group(
    cls=_Sim,
    lazy={"fault": LazyCommand("Inject faults into a running simulated machine.", path="gpuwatch.cli.sim_fault:fault")},
    invoke_without_command=True,
    subcommand_metavar="-- COMMAND... | fault FAULT...",
    context_settings={"allow_interspersed_args": False},
    epilog=_EXAMPLES,
)
@click.option(
    "--gpus", type=click.IntRange(1, 16), metavar="N", default=2, show_default=True, help="Simulate this many GPUs."
)
@click.option("--memory", metavar="SIZE", default="24GiB", show_default=True, help="Give each GPU this much memory.")
@sim_tier_option("--tier")
@sim_option
@click.pass_context
def sim(ctx: click.Context, gpus: int, memory: str, tier: str) -> None:
    """Run a command on simulated GPUs.

    COMMAND gets libraries that simulate NVIDIA's, so that TensorFlow, PyTorch, nvitop, gpustat and gpuwatch itself
    find GPUs on a machine without any. Commands with the same --gpus and --memory see the same devices.
    XLA does not support the plugin tier: Keras runs uncompiled, with a note; a tf.function with jit_compile=True
    fails.
    """
    if ctx.invoked_subcommand is None and not ctx.args:
        raise UsageError("no command to run", hint="for example: gpuwatch sim -- python train.py")
    given = [name for name in ("gpus", "memory") if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given and shape_option_value(ctx) is not None:
        raise UsageError(f"--sim and --{given[0]} cannot be combined", hint="both choose the GPUs")
    ctx.obj = {"gpus": gpus, "memory": memory, "tier": tier}
