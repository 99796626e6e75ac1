"""``--on`` and the options that go with it."""

from __future__ import annotations

from typing import Any

import click

from gpuwatch.cli.command_group import Sectioned
from gpuwatch.cli.option_types import Duration, combined
from gpuwatch.core.errors import UsageError

ARGV_KEY = "gpuwatch.nodes.arguments"
OPTIONS_KEY = "gpuwatch.nodes"


class NodeCommand(Sectioned):
    """A command that remembers its arguments, to be run on nodes with the same ones."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGV_KEY] = list(args)
        return super().parse_args(ctx, args)


def _remember_option(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None:
        ctx.meta.setdefault(OPTIONS_KEY, {})[parameter.name] = value


nodes_options = combined(
    click.option(
        "--on",
        metavar="LAUNCHER",
        expose_value=False,
        callback=_remember_option,
        help="Run this once on each node: local:N, ssh:a,b,n[1-8], slurm[:PARTITION], ray[:ADDRESS].",
    ),
    click.option(
        "--remote-command",
        metavar="COMMAND",
        expose_value=False,
        callback=_remember_option,
        help="With --on: run gpuwatch there with this command, such as /opt/venv/bin/gpuwatch (default: gpuwatch).",
    ),
    click.option(
        "--launcher-options",
        metavar="OPTIONS",
        expose_value=False,
        callback=_remember_option,
        help="With --on: pass these options to ssh or srun, such as '--gres=gpu:8'.",
    ),
    click.option(
        "--node-timeout",
        type=Duration(1, 30 * 86_400),
        metavar="DURATION",
        expose_value=False,
        callback=_remember_option,
        help="With --on: give up on a node after this long, such as 10min.",
    ),
)
"""``--on`` and its companions; :func:`.run_on_nodes.on_nodes` runs the command there."""


def wants_nodes(ctx: click.Context) -> bool:
    """Whether ``--on`` was given; UsageError for its companions without it."""
    given = ctx.meta.get(OPTIONS_KEY, {})
    if given and "on" not in given:
        option = next(iter(given)).replace("_", "-")
        raise UsageError(f"--{option} applies only to --on", hint="for example --on ssh:a,b")
    return bool(given)


def refuse_with_nodes(ctx: click.Context, **given: object) -> None:
    """UsageError for an option that has no meaning on several nodes."""
    for name, value in given.items():
        if value and wants_nodes(ctx):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} and --on cannot be combined", hint=f"omit {option}")
