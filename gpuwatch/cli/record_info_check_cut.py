"""``gpuwatch record info``, ``check`` and ``cut``: what is in a recording, whether it is whole, a part of it."""

from __future__ import annotations

from pathlib import Path

import click

from gpuwatch.cli.completion import complete_files
from gpuwatch.cli.output import print_document, print_line, print_redaction_note, redact_option
from gpuwatch.cli.progress import progress
from gpuwatch.cli.recording_input import recorded_range, recording_of
from gpuwatch.core.errors import EXIT_FAILED
from gpuwatch.core.formatting.safe_text import harmless
from gpuwatch.core.formatting.terminal_support import file_name
from gpuwatch.core.model.json_codec import to_json

_file = click.argument("file", type=click.Path(path_type=Path), shell_complete=complete_files)


_INFO = """\b
Examples:
  gpuwatch record info night.gpuwatch
  gpuwatch record info night.gpuwatch --json | jq .problems
"""


@click.command(epilog=_INFO)
@_file
@click.option("--json", "as_json", is_flag=True, help="Print JSON (gpuwatch.recording/1), with all problems and gaps.")
def info(file: Path, as_json: bool) -> None:
    """Print what is in a recording.

    When, how much, of which GPUs and processes, with which findings and gaps.
    """
    from gpuwatch.machine.recording.recording_info import info_lines, recording_info

    with recording_of(file, empty=True) as recording:
        progress(f"reading {file_name(file)}")
        recording.verify()
        found = recording_info(recording)
        progress("")
        if as_json:
            print_document(to_json(found))
        else:
            click.echo(harmless("\n".join(info_lines(found)) + "\n"), nl=False)


@click.command(epilog="\b\nExamples:\n  gpuwatch record check night.gpuwatch && echo intact\n")
@_file
@click.option("--json", "as_json", is_flag=True, help="Print JSON (gpuwatch.recording-check/1).")
@click.pass_context
def check(ctx: click.Context, file: Path, as_json: bool) -> None:
    """Read a whole recording and report damage and gaps.

    Exits with 0 if everything can be read, and with 1 if something is damaged. Gaps are not damage.
    """
    from gpuwatch.machine.recording.recording_info import check_lines, check_recording

    progress(f"reading {file_name(file)}")
    report = check_recording(file)
    progress("")
    if as_json:
        print_document(to_json(report))
    else:
        click.echo(harmless("\n".join(check_lines(report)) + "\n"), nl=False)
    ctx.exit(0 if report.whole else EXIT_FAILED)


_CUT = """\b
Examples:
  gpuwatch record cut night.gpuwatch --since 14:00 --until 14:20 -o incident.gpuwatch
  gpuwatch record cut night.gpuwatch --since '20 min ago' -o incident.gpuwatch --redact
"""


@click.command(epilog=_CUT)
@_file
@click.option("--since", metavar="TIME", help="Start: 14:05, '20 min ago', -2h, 2026-05-11T14:05 (default: all).")
@click.option(
    "--until", metavar="TIME", help="End, in the same format; '20 min ago' counts back from the recording's end."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Write to FILE, which must not exist yet.",
)
@redact_option
def cut(file: Path, since: str | None, until: str | None, output: Path, redact: bool) -> None:
    """Write part of a recording to a new file."""
    from gpuwatch.machine.recording.cut_recording import cut_out

    with recording_of(file) as recording:
        begin, end = recorded_range(recording, since, until)
        if redact:
            print_redaction_note()
        progress(f"writing {file_name(output)}")
        samples = cut_out(recording, begin, end, output, redact=redact)
        progress("")
        print_line(f"gpuwatch: wrote {samples:,} samples to {file_name(output)}")
