"""``gpuwatch mcp``: gpuwatch as tools for assistants."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gpuwatch.cli.shared_options import python_option
from gpuwatch.cli.sim_options import enter_simulation, sim_option
from gpuwatch.core.errors import EXIT_OK, GpuwatchError

_EXAMPLES = """\b
Examples:
  claude mcp add gpuwatch -- gpuwatch mcp
  gpuwatch mcp --redact --logs ~/runs
  gpuwatch mcp --allow-work --python ~/venv/bin/python
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--allow-work",
    is_flag=True,
    help="Also offer probe and try, which run work on the GPUs and programs that the assistant names.",
)
@click.option(
    "--logs",
    "folders",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    metavar="FOLDER",
    help="Read logs and documents only below FOLDER; repeatable (default: anywhere this user may).",
)
@click.option(
    "--redact",
    is_flag=True,
    help="Replace users, hosts, paths, addresses and ids in answers. Secrets are always masked.",
)
@python_option
@sim_option
@click.pass_context
def mcp(ctx: click.Context, allow_work: bool, folders: tuple[Path, ...], redact: bool, python: str | None) -> None:
    """Serve GPU facts and causes to an assistant (MCP).

    Speaks MCP over stdin and stdout; the assistant's client starts it. It offers snapshot, doctor, explain_log,
    list_causes, cause, find_free_gpus, usage and compare, which change nothing. Needs the extra mcp.
    """
    try:
        from gpuwatch.share.assistant.mcp_server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "gpuwatch":
            raise
        raise GpuwatchError(
            "gpuwatch mcp needs the MCP SDK, version 2", hint="pip install 'gpuwatch-tui[mcp]'"
        ) from error
    if python is not None:
        from gpuwatch.experiment.probing.interpreter import resolve_python

        resolve_python(python)
    if sys.stdin is None or sys.stdin.isatty():
        raise GpuwatchError("stdin is not connected to an assistant", hint="see gpuwatch mcp --help")
    enter_simulation(ctx)
    ended_by = serve(allow_work=allow_work, redact=redact, folders=folders, python=python)
    ctx.exit(EXIT_OK if ended_by is None else 128 + ended_by)
