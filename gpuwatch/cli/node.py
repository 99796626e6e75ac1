"""``gpuwatch node``, hidden: what ``--on`` starts on each node."""

from __future__ import annotations

import sys

import click

from gpuwatch.core.errors import UsageError


@click.command(hidden=True, context_settings={"allow_interspersed_args": False})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def node(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Run a gpuwatch command for another machine, which started this by --on."""
    from gpuwatch.fleet.cluster.node_agent import serve
    from gpuwatch.fleet.cluster.node_results import KINDS

    if not arguments or arguments[0] not in KINDS:
        raise UsageError("gpuwatch node is started by --on", hint="for example gpuwatch snapshot --on ssh:a,b")
    ctx.exit(serve([sys.executable, "-m", "gpuwatch", *arguments]))
