"""``gpuwatch snapshot``: one sample as text, JSON or CSV."""

from __future__ import annotations

import datetime
import os
import time
from pathlib import Path
from typing import NoReturn

import click
import msgspec

from gpuwatch.cli.dashboard import findings
from gpuwatch.cli.options import FiniteRange, asked_gpm, enter_simulation, gpm_option, sim_option
from gpuwatch.cli.output import check_output, output_option, publish, redact_option
from gpuwatch.errors import EXIT_FAILED, EXIT_OK, UsageError
from gpuwatch.model.snapshot import Host, Problem, Snapshot
from gpuwatch.monitor.collector import Collector
from gpuwatch.sim.sysfs import ENV_STATE
from gpuwatch.sources.host import HostReader

_BETWEEN = 0.25
"""Seconds between the two samples: CPU and rates need two."""


def take(deadline: float, *, gpm: bool = False) -> tuple[Snapshot, bool]:
    """A snapshot with rates in it, and whether the driver answered within ``deadline`` seconds."""
    collector = Collector(_BETWEEN, on_demand=True, gpm=gpm)
    collector.start()
    try:
        taken = collector.wait(2, deadline)
    finally:
        collector.stop()
    if taken:
        return taken[-1], True
    simulated = bool(os.environ.get(ENV_STATE))  # which a library that does not answer cannot tell
    cure = (
        "gpuwatch sim fault clear ends a fault of the simulated GPUs" if simulated else "see dmesg for a GPU that hangs"
    )
    problem = Problem(
        source="collector",
        reason="driver.bad-state",
        detail=f"the driver did not answer within {deadline:g} s",
        hint=f"{cure}; --deadline gives it more time",
    )
    host, problems = _host()
    silent = Snapshot(
        taken_at=datetime.datetime.now(datetime.UTC),
        took_seconds=deadline,
        simulated=simulated,
        driver=None,
        devices=(),
        processes=(),
        host=host,
        problems=(problem, *problems),
    )
    return silent, False


def _host() -> tuple[Host, list[Problem]]:
    """The machine around the GPUs, which answers although their driver does not."""
    reader = HostReader()
    reader.read()
    time.sleep(_BETWEEN)
    return reader.read()


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document (gpuwatch.snapshot/1).")
@click.option("--csv", "as_csv", is_flag=True, help="One line per GPU, metric ids as header.")
@click.option("--topology", is_flag=True, help="How the GPUs hang together, and the CPUs beside them, as a matrix.")
@click.option(
    "--deadline",
    type=FiniteRange(min=0.5),
    default=10.0,
    show_default=True,
    help="Seconds to wait for the driver.",
)
@output_option
@redact_option
@gpm_option
@sim_option
@click.pass_context
def snapshot(
    ctx: click.Context,
    as_json: bool,
    as_csv: bool,
    topology: bool,
    deadline: float,
    output: Path | None,
    redact: bool,
) -> None:
    """Show the GPUs and their processes once.

    The exit code is 0 when the driver answered, whatever is wrong with its GPUs, and 1 when it did not: it is
    missing, does not start or hangs.
    """
    if topology and (as_csv or output is not None):
        raise UsageError("--topology is text for the terminal", hint="--json has it too, also with -o")
    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other")
    check_output(output)
    enter_simulation(ctx)
    taken, _ = take(deadline, gpm=bool(asked_gpm(ctx)))
    taken = msgspec.structs.replace(taken, findings=findings(taken))
    if topology and not as_json:
        _show_topology(ctx, taken)
    publish(taken, output, as_json=as_json, format_name="csv" if as_csv else None, redact=redact)
    if as_csv:
        for problem in taken.problems:
            click.echo(f"gpuwatch: {problem.detail} ({problem.hint})", err=True)
    ctx.exit(_code(taken))


def _code(taken: Snapshot) -> int:
    return EXIT_FAILED if taken.driver is None else EXIT_OK


def _show_topology(ctx: click.Context, taken: Snapshot) -> NoReturn:
    """The matrix alone; where there are no GPUs the reason, on stderr."""
    from gpuwatch.reports.formats.text import tables
    from gpuwatch.reports.topology_content import topology_content

    for problem in taken.problems if not taken.devices else ():
        click.echo(f"gpuwatch: {problem.detail} ({problem.hint})", err=True)
    if taken.devices:
        click.echo(tables(topology_content(taken)), nl=False)
    ctx.exit(_code(taken))
