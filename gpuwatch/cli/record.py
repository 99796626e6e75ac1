"""``gpuwatch record``: records the GPUs and their processes to a file; ``info``, ``check``, ``cut``: works on one."""

from __future__ import annotations

import os
import platform
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gpuwatch.cli import exit_signals
from gpuwatch.cli.command_classes import LazyCommand, LazyGroup
from gpuwatch.cli.input_files import read_recording, recorded_range
from gpuwatch.cli.option_types import Duration, Size
from gpuwatch.cli.output import (
    output_file_option,
    print_document,
    print_line,
    print_redaction_note,
    redact_option,
)
from gpuwatch.cli.progress import progress, progress_wanted
from gpuwatch.cli.shared_options import alert_options, alerts_of, gpm_option, gpm_option_value, period_options
from gpuwatch.cli.sim_options import enter_simulation, sim_option
from gpuwatch.core.errors import EXIT_FAILED, UsageError
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import exact_size, size
from gpuwatch.core.model.json_codec import to_json
from gpuwatch.core.safe_text import printable_lines
from gpuwatch.machine.recording import recording_defaults

_EXAMPLES = """\b
Examples:
  gpuwatch record                             record this machine until Ctrl+C
  gpuwatch record night.gpuwatch --every 5s
  gpuwatch record --max-size 500MB --max-age 7d
  gpuwatch record info night.gpuwatch         show its contents
  gpuwatch record cut night.gpuwatch --since 14:00 --until 14:20 -o incident.gpuwatch
  gpuwatch record --on-finding 'mail -s GPU me'   JSON on stdin when a finding begins or ends
  gpuwatch record --print-unit                a systemd unit, to record always
"""


class _Record(LazyGroup):
    """``record FILE``, or one of the subcommands; a file named like a subcommand is given as ``./info``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not (args and args[0] in self.lazy):
            ctx.allow_interspersed_args = True  # options may follow the file
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.lazy:
            return super().resolve_command(ctx, args)
        return _record_to_file.name, _record_to_file, args


@click.command("file", hidden=True, add_help_option=False)
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_context
def _record_to_file(ctx: click.Context, file: Path) -> None:
    """Records to a file, with the options of the group."""
    _record(ctx, file, **ctx.obj)


@click.group(
    cls=_Record,
    lazy={
        "info": LazyCommand("Print what is in a recording.", path="gpuwatch.cli.record:info"),
        "check": LazyCommand("Read a whole recording and report damage and gaps.", path="gpuwatch.cli.record:check"),
        "cut": LazyCommand("Write part of a recording to a new file.", path="gpuwatch.cli.record:cut"),
    },
    invoke_without_command=True,
    epilog=_EXAMPLES,
    subcommand_metavar="[FILE | info | check | cut]",
)
@click.option(
    "--every",
    type=Duration(0.25, 60.0),
    default=f"{recording_defaults.INTERVAL_SECONDS:g}s",
    show_default=True,
    help="Time between samples.",
)
@click.option(
    "--max-size",
    type=Size(recording_defaults.MIN_BYTES),
    default=exact_size(recording_defaults.MAX_BYTES),
    show_default=True,
    help="Delete the oldest samples when the file reaches this size.",
)
@click.option(
    "--max-age",
    type=Duration(60.0, 3650 * 86_400.0),
    default=f"{recording_defaults.MAX_SECONDS / 86_400:g}d",
    show_default=True,
    help="Delete samples older than this. Averages per minute are kept 3 times as long, per hour 12 times.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), hidden=True)
@click.option("--print-unit", is_flag=True, help="Print a systemd unit that records with these options, and exit.")
@alert_options
@click.option(
    "--notify", is_flag=True, help="Show findings as desktop notifications, through the terminal (OSC 9 or 777)."
)
@gpm_option
@sim_option
@click.pass_context
def record(ctx: click.Context, /, **options: Any) -> None:
    """Record the GPUs and their processes to FILE.

    Records until Ctrl+C or SIGTERM; without FILE, to this machine's own file in the state folder. An existing recording
    is continued. Each sample is written to disk immediately, so a kill loses none. The file is private; to let others
    read it, change its mode or group. Dashboards on this machine take their samples from the recording, so that only
    one process queries the driver, and they can go back to its start.
    """
    if ctx.invoked_subcommand in (None, _record_to_file.name):
        output = options.pop("output")
        ctx.obj = options
        if ctx.invoked_subcommand is None:
            _record(ctx, output, **options)
        elif output is not None:
            raise UsageError("give either FILE or -o FILE")
        return
    given = " and ".join(
        param.opts[0]
        for param in ctx.command.params
        if ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
    )
    if given:
        raise UsageError(
            f"{given} before {ctx.invoked_subcommand} would have no effect",
            hint=f"omit {given}, or write ./{ctx.invoked_subcommand} for a file of that name",
        )


def _record(
    ctx: click.Context,
    file: Path | None,
    every: float,
    max_size: int,
    max_age: float,
    print_unit: bool,
    on_finding: str | None,
    webhook: str | None,
    notify: bool,
) -> None:
    alerts = alerts_of(on_finding, webhook, notify)
    if print_unit:
        if on_finding is not None or notify or webhook != os.environ.get("GPUWATCH_WEBHOOK"):
            raise UsageError(
                "--print-unit does not include alerts",
                hint="add --on-finding or GPUWATCH_WEBHOOK with systemctl edit gpuwatch",
            )
        from gpuwatch.cli.systemd_units import recorder_unit

        click.echo(recorder_unit(file, every, max_size, max_age), nl=False)
        return
    enter_simulation(ctx)
    if alerts is not None and sys.stderr.isatty():
        alerts.write_to(lambda text: print(text, end="", file=sys.stderr, flush=True))
    from gpuwatch.machine.collector.live_feed import LiveFeed
    from gpuwatch.machine.recording.running_recorders import Announcement
    from gpuwatch.machine.recording.writer import SEAL_SECONDS, RecordingWriter
    from gpuwatch.session.recorder import Recorder

    path = file if file is not None else _writable_default_file()
    writer = RecordingWriter(
        path,
        interval=every,
        max_bytes=max_size,
        max_age=max_age,
        # A block of rare samples lasts longer, so that it has as many: one sample alone cannot be compressed.
        # Tests set the variable.
        seal_seconds=float(os.environ.get("GPUWATCH_RECORD_SEAL_SECONDS") or SEAL_SECONDS * max(every, 1.0)),
        hostname=platform.node() or None,
    )
    gpm = bool(gpm_option_value(ctx))
    feed = LiveFeed(every, gpm=gpm)
    announcement = None
    try:
        announcement = Announcement(path, every, gpm=gpm)
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None else ""  # a write names no file
        print_line(f"gpuwatch: dashboards will not find this recorder: {place}{error.strerror or error}")
    recorder = Recorder(feed, writer, announcement=announcement, alerts=alerts)
    ended: list[str] = []

    def end(number: int, frame: object) -> None:
        ended.append(signal.Signals(number).name)
        recorder.stop()

    exit_signals.handle_exit_signals(end, signal.SIGINT)
    name = printable_path(path)
    if not progress_wanted():
        print_line(f"gpuwatch: recording to {name}, every {every:g} s")

    silent = False

    def show() -> None:
        nonlocal silent
        status = feed.status()
        if silent != (status.state == "not-answering"):
            silent = not silent
            progress("")
            print_line(status.log_line)
        snapshot = recorder.snapshot
        if progress_wanted() and snapshot is not None:
            counts = f"{count_text(writer.samples, 'sample')} of {count_text(len(snapshot.devices), 'GPU')}"
            summary = f"{counts}, file {size(writer.size_bytes)}"
            progress(f"recording to {name}: {summary}; Ctrl+C stops")

    try:
        recorder.run(show)
    finally:
        progress("")
        if announcement is not None:
            announcement.close()
        writer.close(f"by {ended[0]}" if ended else "")
    print_line(f"gpuwatch: recorded {count_text(writer.samples, 'sample')} to {name} ({size(writer.size_bytes)})")


def _writable_default_file() -> Path:
    from gpuwatch.core import private_folders
    from gpuwatch.machine.recording.recording_defaults import default_recording_file

    path = default_recording_file()
    try:
        return private_folders.private_folder(path.parent, "XDG_STATE_HOME", "recordings") / path.name
    except OSError as error:
        reason = f"cannot record to {printable_path(path.parent)}: {error.strerror or error}"
        raise UsageError(reason, hint="name a file") from None


_file_argument = click.argument("file", type=click.Path(path_type=Path))


_INFO_EXAMPLES = """\b
Examples:
  gpuwatch record info night.gpuwatch
  gpuwatch record info night.gpuwatch --json | jq .problems
"""


@click.command(epilog=_INFO_EXAMPLES)
@_file_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON (gpuwatch.recording/1), with all problems and gaps.")
def info(file: Path, as_json: bool) -> None:
    """Print what is in a recording.

    When, how much, of which GPUs and processes, with which findings and gaps.
    """
    from gpuwatch.machine.recording.recording_info import info_lines, recording_info

    with read_recording(file, may_be_empty=True) as recording:
        progress(f"reading {printable_path(file)}")
        recording.verify()
        found = recording_info(recording)
        progress("")
        _print_json_or_lines(to_json(found) if as_json else info_lines(found))


@click.command(epilog="\b\nExamples:\n  gpuwatch record check night.gpuwatch && echo intact\n")
@_file_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON (gpuwatch.recording-check/1).")
@click.pass_context
def check(ctx: click.Context, file: Path, as_json: bool) -> None:
    """Read a whole recording and report damage and gaps.

    Exits with 0 if everything can be read, and with 1 if something is damaged. Gaps are not damage.
    """
    from gpuwatch.machine.recording.recording_info import check_lines, check_recording

    progress(f"reading {printable_path(file)}")
    report = check_recording(file)
    progress("")
    _print_json_or_lines(to_json(report) if as_json else check_lines(report))
    ctx.exit(0 if report.whole else EXIT_FAILED)


def _print_json_or_lines(document: str | Iterable[str]) -> None:
    """Prints JSON, or the lines of a text."""
    if isinstance(document, str):
        print_document(document)
    else:
        click.echo(printable_lines("\n".join(document)))


_CUT_EXAMPLES = """\b
Examples:
  gpuwatch record cut night.gpuwatch --since 14:00 --until 14:20 -o incident.gpuwatch
  gpuwatch record cut night.gpuwatch --since '20 min ago' -o incident.gpuwatch --redact
"""


@click.command(epilog=_CUT_EXAMPLES)
@_file_argument
@period_options()
@output_file_option("Write to FILE, which must not exist yet.", required=True)
@redact_option
def cut(file: Path, since: str | None, until: str | None, output: Path, redact: bool) -> None:
    """Write part of a recording to a new file."""
    from gpuwatch.machine.recording.cut_recording import cut_out

    with read_recording(file) as recording:
        begin, end = recorded_range(recording, since, until)
        if redact:
            print_redaction_note()
        progress(f"writing {printable_path(output)}")
        samples = cut_out(recording, begin, end, output, redact=redact)
        progress("")
        print_line(f"gpuwatch: wrote {count_text(samples, 'sample')} to {printable_path(output)}")
