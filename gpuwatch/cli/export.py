"""``gpuwatch export``: a recording in the format of another tool."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from gpuwatch.cli.input_files import read_recording
from gpuwatch.cli.option_types import Choice
from gpuwatch.cli.output import (
    check_writable,
    file_unless_stdout,
    output_file_option,
    print_line,
    print_redaction_note,
    print_written,
    redact_option,
)
from gpuwatch.cli.progress import progress
from gpuwatch.cli.shared_options import period_options
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.run import Run
from gpuwatch.share.exports import export_formats
from gpuwatch.share.exports.exported_period import STEPS, ExportedPeriod, RedactedPeriod, select_period
from gpuwatch.share.exports.recording_tables import TABLE_NAMES, table

_PROGRESS_STEP_BYTES = 1 << 22
"""Bytes between two updates of the progress."""
_TABLES = frozenset({"csv", "parquet"})

_EXAMPLES = """\b
Examples:
  gpuwatch export night.gpuwatch -o night.pftrace             for ui.perfetto.dev, next to a training trace
  gpuwatch export night.gpuwatch -o night.parquet             for DuckDB, pandas, Polars
  gpuwatch export night.gpuwatch --table lives -o jobs.csv    a row for each process on each GPU
  gpuwatch export night.gpuwatch --since '2h ago' --format ndjson | jq .
  gpuwatch export year.gpuwatch --every 1h -o year.om         means, for promtool
  gpuwatch export night.gpuwatch --redact -o night.pftrace    with users, hosts and paths replaced
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "format_name",
    type=Choice(list(export_formats.BY_NAME)),
    help="Use this format (default: that of the suffix).",
)
@output_file_option(f"Write to FILE, in the format of its suffix: {export_formats.SUFFIXES}; - for stdout.")
@period_options()
@click.option(
    "--every",
    "every",
    type=Choice(list(STEPS)),
    default="sample",
    show_default=True,
    help="Write every sample, or the minimum, mean and maximum of each minute or hour, which recordings keep longer.",
)
@click.option(
    "--table",
    "table_name",
    type=Choice(list(TABLE_NAMES)),
    help="Write this table to the CSV or Parquet file (default: devices).",
)
@click.option(
    "--run",
    "documents",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DOCUMENT",
    help="Show this saved run in the trace (default: the runs kept on this machine). Repeatable; perfetto only.",
)
@redact_option
def export(
    file: Path,
    format_name: str | None,
    output: Path | None,
    since: str | None,
    until: str | None,
    every: str,
    table_name: str | None,
    documents: tuple[Path, ...],
    redact: bool,
) -> None:
    """Convert a recording to the format of another tool.

    perfetto: counters, processes, findings and events by GPU, in wall-clock time. parquet, csv: one table. ndjson: one
    document per line (gpuwatch schema snapshot, event, finding, means). openmetrics: for Prometheus. Missing values
    are never filled in.
    """
    check_writable(output, any_suffix=True)
    chosen = _chosen_format(format_name, output)
    if table_name is not None and chosen.name not in _TABLES:
        raise UsageError("--table applies only to csv and parquet", hint="omit --table")
    if documents and chosen.name != "perfetto":
        raise UsageError("--run applies only to perfetto", hint="omit --run")
    if table_name not in (None, "devices") and every != "sample":
        raise UsageError(f"--every {every} applies only to the table devices", hint="omit --every")
    with read_recording(file) as recording:
        period = select_period(recording, since, until, STEPS[every])
        runs = _runs_to_export(documents, period) if chosen.name == "perfetto" else []
        if redact:
            print_redaction_note()
            period = RedactedPeriod(period, runs)
            runs = period.runs
        if chosen.name in _TABLES:
            pieces = chosen.write(period, table(table_name or "devices", period.step))
        else:
            pieces = chosen.write(period, *([runs] if chosen.name == "perfetto" else []))
        _write(pieces, chosen.name, file_unless_stdout(output))


def _chosen_format(name: str | None, output: Path | None) -> export_formats.ExportFormat:
    if name is None:
        if (file := file_unless_stdout(output)) is None:
            raise UsageError("no format was given", hint="add --format, or -o FILE with a suffix")
        return export_formats.format_for(file)
    chosen = export_formats.BY_NAME[name]
    if chosen.binary and (output is None or (file_unless_stdout(output) is None and sys.stdout.isatty())):
        raise UsageError(f"{name} is a binary format", hint=f"add -o FILE{chosen.suffixes[0]}")
    return chosen


def _write(pieces: Iterable[bytes], format_name: str, output: Path | None) -> None:
    if output is None:
        progress("" if sys.stdout.isatty() else f"exporting as {format_name}")
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        progress("")
        return
    from gpuwatch.core.write_file import open_whole

    total = shown = 0
    progress(f"writing {printable_path(output)}")
    try:
        with open_whole(output) as out:
            for piece in pieces:
                out.write(piece)
                total += len(piece)
                if total - shown >= _PROGRESS_STEP_BYTES:
                    shown = total
                    progress(f"{printable_path(output)}: {size(total)}")
    finally:
        progress("")
    print_written(output)


def _runs_to_export(documents: tuple[Path, ...], period: ExportedPeriod) -> list[Run]:
    """The runs that were asked for, else those that are kept here, if the recording is of this machine."""
    from gpuwatch.cli.input_files import read_document
    from gpuwatch.core.model.comparison import Comparison
    from gpuwatch.core.model.json_codec import runs_in
    from gpuwatch.core.model.try_results import Experiment
    from gpuwatch.machine.history.saved_runs import RunStore
    from gpuwatch.share.exports.perfetto_writer import run_overlaps

    if not documents:
        here = platform.node()
        if not here or period.host != here:
            return []
        return [run for run in RunStore().latest() if run.host in (None, here)]
    runs: list[Run] = []
    for path in documents:
        document = read_document(path)
        if not isinstance(document, Run | Comparison | Experiment):
            raise UsageError(f"{printable_path(path)} is not a run", hint="give what gpuwatch run, probe or try saved")
        runs += runs_in(document)
    missed = sum(not run_overlaps(run, period) for run in runs)
    if missed:
        print_line(f"gpuwatch: left out {missed} of {count_text(len(runs), 'run')}: outside the exported time")
    return runs
