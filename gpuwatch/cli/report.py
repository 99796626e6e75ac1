"""``gpuwatch report``: a report of this machine, of a saved document or of a recording."""

from __future__ import annotations

from pathlib import Path

import click

from gpuwatch.cli.input_files import is_recording, read_document, read_recording, recorded_range
from gpuwatch.cli.output import Output, output_options
from gpuwatch.cli.progress import progress
from gpuwatch.cli.run_on_nodes import NodeCommand, nodes_options, refuse_with_nodes, run_on_nodes, wants_nodes
from gpuwatch.cli.shared_options import framework_option, period_options, python_option
from gpuwatch.cli.sim_options import enter_simulation, shape_option_value, sim_option
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.model.json_codec import Document

_EXAMPLES = """\b
Examples:
  gpuwatch report -o diag.html
  gpuwatch report --redact -o diag.md
  gpuwatch report --with train.log --with nvidia-bug-report.log.gz -o diag.html
  gpuwatch report run.json --format csv
  gpuwatch report night.gpuwatch --since -2h -o night.html
  gpuwatch report night.gpuwatch --since 03:10 --until 03:40 --redact -o incident.html
"""


@click.command(cls=NodeCommand, epilog=_EXAMPLES)
@click.argument("source", required=False, type=click.Path(path_type=Path), metavar="[DOCUMENT|RECORDING]")
@output_options("Print JSON (gpuwatch.diagnostic/1, or the document's own).", with_format=True)
@period_options()
@click.option(
    "--with",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Include what gpuwatch explain finds in FILE (a log, nvidia-bug-report.log.gz, ...); repeatable.",
)
@python_option
@framework_option
@click.option("--no-doctor", is_flag=True, help="Skip the doctor, which imports the framework.")
@nodes_options
@sim_option
@click.pass_context
def report(
    ctx: click.Context,
    source: Path | None,
    output: Output,
    since: str | None,
    until: str | None,
    files: tuple[Path, ...],
    python: str | None,
    framework: str | None,
    no_doctor: bool,
) -> None:
    """Write a report to send to whoever helps you.

    Without DOCUMENT, it covers this machine: what is wrong, what to do and the evidence, with its GPUs and processes,
    the doctor's checks, and the latest probes and programs. With DOCUMENT, a saved run, comparison, snapshot,
    explanation or report (JSON, or HTML that contains it) is converted to another format. With RECORDING (from gpuwatch
    record), it covers a time range: graphs with processes, runs, events and findings over them, what changed before the
    first finding, and who used the GPUs.
    """
    if source is not None and wants_nodes(ctx):
        raise UsageError("--on applies only to reports of machines", hint=f"omit {source} or --on")
    recorded = source is not None and is_recording(source)
    if (since or until) and not recorded:
        raise UsageError(
            f"{'--since' if since else '--until'} applies only to a recording",
            hint="give a file that gpuwatch record wrote",
        )
    refuse_with_nodes(ctx, since=since, until=until, **{"with": files})
    run_on_nodes(ctx, output)
    if source is None:
        from gpuwatch.cli.explain import explanation_of
        from gpuwatch.share.gather_diagnostic import gather_diagnostic

        explained = tuple(
            (f"given file {number}" if output.redact else printable_path(path.name), explanation_of(path))
            for number, path in enumerate(files, 1)
        )
        enter_simulation(ctx)
        document: Document = gather_diagnostic(python, framework, progress, with_doctor=not no_doctor, files=explained)
    else:
        local = {"--python": python, "--framework": framework, "--no-doctor": no_doctor, "--with": files}
        for name, value in {**local, "--sim": shape_option_value(ctx)}.items():
            if value:
                raise UsageError(f"{name} applies only to a report of this machine", hint=f"omit {source} or {name}")
        if recorded:
            with read_recording(source) as recording:
                from gpuwatch.session.recorded_period_document import period_document

                begin, end = recorded_range(recording, since, until)
                document = period_document(
                    recording, begin, end, lambda share: progress("reading samples" if share < 1 else "")
                )
                progress("")
                output.publish(document)
            return
        document = read_document(source)
    output.publish(document)
