"""``gpuwatch snapshot``: one sample as text, JSON or CSV."""

from __future__ import annotations

import sys
from typing import NoReturn

import click
import msgspec

from gpuwatch.cli import early_collector
from gpuwatch.cli.option_types import Duration
from gpuwatch.cli.output import Output, output_options, print_document, print_line
from gpuwatch.cli.progress import progress
from gpuwatch.cli.run_on_nodes import NodeCommand, nodes_options, refuse_with_nodes, run_on_nodes
from gpuwatch.cli.shared_options import gpm_option, gpm_option_value
from gpuwatch.cli.sim_options import enter_simulation, sim_option
from gpuwatch.core.errors import EXIT_FAILED, EXIT_OK, UsageError
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.safe_text import printable_lines
from gpuwatch.session.snapshots import findings_of, take_snapshot

_EXAMPLES = """\b
Examples:
  gpuwatch snapshot
  gpuwatch snapshot --json | jq '.devices[].readings["power.draw_watts"]'
  gpuwatch snapshot --csv -o gpus.csv
  gpuwatch snapshot --json --every 5s | jq -c '.findings[].title'
  gpuwatch snapshot --on ssh:n[1-8] -o cluster.html
"""


@click.command(cls=NodeCommand, epilog=_EXAMPLES)
@output_options("Print JSON (gpuwatch.snapshot/1).", "Print CSV: a row per GPU, a column per metric.")
@click.option("--topology", is_flag=True, help="Print a matrix of how GPUs and CPUs are connected.")
@click.option(
    "--deadline", type=Duration(0.5, 86_400.0), default="10s", show_default=True, help="Wait this long for the driver."
)
@click.option(
    "--every",
    type=Duration(0.25, 3600.0),
    help="With --json: print a sample at this interval, one per line, until interrupted.",
)
@gpm_option
@nodes_options
@sim_option
@click.pass_context
def snapshot(ctx: click.Context, output: Output, topology: bool, deadline: float, every: float | None) -> None:
    """Print the GPUs and their processes once, or repeatedly with --every.

    Exits with 0 if the driver answers, whatever is wrong with its GPUs, and with 1 if it is missing, does not start
    or hangs.
    """
    as_csv = output.format_name == "csv"
    if topology and (as_csv or output.file is not None):
        raise UsageError("--topology prints text only", hint="--json has the topology too, also with -o")
    if every is not None and (not output.as_json or topology or output.file is not None):
        raise UsageError("--every prints JSON to stdout", hint="gpuwatch snapshot --json --every 5s")
    refuse_with_nodes(ctx, topology=topology, every=every is not None)
    run_on_nodes(ctx, output)
    enter_simulation(ctx)
    if every is not None:
        _print_stream(every, gpm=bool(gpm_option_value(ctx)), redact=output.redact)
    progress("reading the GPUs")
    early_start = early_collector.take_early_start()
    sample, _ = take_snapshot(
        deadline,
        gpm=bool(gpm_option_value(ctx)),
        first=early_start.collector if early_start is not None else None,
        preload=("gpuwatch.share.reports.formats.text",),
        hint_end="; to wait longer: --deadline",
    )
    progress("")
    sample = msgspec.structs.replace(sample, findings=findings_of(sample))
    exit_code = EXIT_FAILED if sample.driver is None else EXIT_OK
    if topology and not output.as_json:
        from gpuwatch.share.reports.formats.text import render_tables
        from gpuwatch.share.reports.topology_matrix import topology_content

        if sample.devices:
            click.echo(printable_lines(render_tables(topology_content(sample))), nl=False)
        else:
            _print_problems(sample)
        ctx.exit(exit_code)
    output.publish(sample)
    if as_csv:
        _print_problems(sample)
    ctx.exit(exit_code)


def _print_stream(interval: float, *, gpm: bool, redact: bool) -> NoReturn:
    """Prints a line for each sample until nobody reads them."""
    from gpuwatch.core.masking.masked_documents import masked_for_sending
    from gpuwatch.core.model.json_codec import to_json
    from gpuwatch.session.snapshots import stream_snapshots

    for sample in stream_snapshots(interval, gpm=gpm):
        print_document(to_json(masked_for_sending(sample, redact=redact), indent=0))
        sys.stdout.flush()
    raise AssertionError("the stream has no end")


def _print_problems(sample: Snapshot) -> None:
    for problem in sample.problems:
        print_line(f"gpuwatch: {problem.detail} ({problem.hint})")
