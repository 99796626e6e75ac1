"""``gpuwatch node``: runs a command for another machine, which started this by --on."""

from __future__ import annotations

import sys

import click

from gpuwatch.core.errors import UsageError


@click.command(hidden=True, context_settings={"allow_interspersed_args": False})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def node(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Run a gpuwatch command for another machine, which started this by --on."""
    from gpuwatch.fleet.cluster.node_agent import run_and_report
    from gpuwatch.fleet.cluster.node_comparison import DOCUMENT_TYPES

    if not arguments or arguments[0] not in DOCUMENT_TYPES:
        raise UsageError("gpuwatch node is started by --on", hint="for example gpuwatch snapshot --on ssh:a,b")
    ctx.exit(run_and_report([sys.executable, "-m", "gpuwatch", *arguments]))
