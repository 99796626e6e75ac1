"""``gpuwatch diff``: what differs between two machines, or between two days of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from gpuwatch.cli.completion import complete_files
from gpuwatch.cli.output import check_writable, output_option, publish, redact_option
from gpuwatch.cli.progress import progress
from gpuwatch.cli.read_saved_document import read_document
from gpuwatch.cli.read_trace import recording_at
from gpuwatch.cli.recording_input import is_recording, recording_of
from gpuwatch.core.errors import EXIT_DIFFERENT, GpuwatchError, UsageError
from gpuwatch.core.formatting.terminal_support import file_name
from gpuwatch.core.masking.redaction import masked_for_sending
from gpuwatch.core.model.diagnostic_report import Diagnostic
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.time_expressions import parse_moment, time_text
from gpuwatch.share.reports.diff_memory import side_of_profiles
from gpuwatch.share.reports.diff_report import diff as compared
from gpuwatch.share.reports.diff_sides import (
    Comparable,
    DiffSide,
    last_sample_of,
    side_of_document,
    side_of_recording,
    step_for,
)

_EXAMPLES = """\b
Examples:
  gpuwatch diff node1.json node2.json                       two reports (gpuwatch report -o node1.json)
  gpuwatch diff monday.gpuwatch tuesday.gpuwatch -o days.html
  gpuwatch diff night.gpuwatch night.gpuwatch --a-until 14:00 --b-since 14:00
  gpuwatch diff step100.pickle step200.pickle               two snapshots of PyTorch's memory: what grew
  gpuwatch diff golden.json now.json > /dev/null || echo changed
"""


@dataclass
class _Source:
    """A file, and what was read of it."""

    path: Path
    since: str | None
    until: str | None
    document: Comparable | None = None
    memory: Explanation | None = None
    """A snapshot or profile of a program's memory."""
    recording: Recording | None = None
    begin: float = 0.0
    end: float = 0.0
    last: Snapshot | None = None

    @property
    def host(self) -> str | None:
        snapshot = self.last or self.document
        assert snapshot is not None
        return snapshot.host.hostname if isinstance(snapshot, Snapshot) else snapshot.host


@click.command(epilog=_EXAMPLES)
@click.argument("first", type=click.Path(path_type=Path), shell_complete=complete_files, metavar="A")
@click.argument("second", type=click.Path(path_type=Path), shell_complete=complete_files, metavar="B")
@click.option(
    "--since",
    metavar="TIME",
    help="Start in recordings: 14:05, '2h ago' (before the recording's end), 2026-05-11T14:05.",
)
@click.option("--until", metavar="TIME", help="End in recordings, in the same format.")
@click.option("--a-since", metavar="TIME", help="Start in A, if it differs from B's.")
@click.option("--a-until", metavar="TIME", help="End in A.")
@click.option("--b-since", metavar="TIME", help="Start in B.")
@click.option("--b-until", metavar="TIME", help="End in B.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (gpuwatch.diff/1).")
@output_option
@redact_option
@click.pass_context
def diff(
    ctx: click.Context,
    first: Path,
    second: Path,
    since: str | None,
    until: str | None,
    a_since: str | None,
    a_until: str | None,
    b_since: str | None,
    b_until: str | None,
    as_json: bool,
    output: Path | None,
    redact: bool,
) -> None:
    """Compare two machines, or two days of one: what changed?

    A and B are recordings, reports (gpuwatch report, doctor), snapshots or runs, of the same kind or with content in
    common. Shows which versions, GPUs, limits and modes differ, which findings came and went and, for recordings, which
    metrics differ by more than their normal variation. For two snapshots or profiles of a program's memory, shows what
    grew, by line.

    Exits with 0 if nothing differs, 3 if something does, 2 if A or B is missing or cannot be compared, 1 if one is
    damaged or gpuwatch failed.
    """
    check_writable(output)
    with ExitStack() as opened:
        source = opened.enter_context(_open_source(_Source(first, a_since or since, a_until or until), redact))
        two = opened.enter_context(_open_source(_Source(second, b_since or since, b_until or until), redact))
        progress("comparing")
        document = compared(*_side_of(source, two))
        progress("")
        publish(document, output, as_json=as_json, redact=redact)
        if document.differs:
            ctx.exit(EXIT_DIFFERENT)


@contextmanager
def _open_source(source: _Source, redact: bool) -> Iterator[_Source]:
    name = file_name(source.path)
    progress(f"reading {name}")
    if not is_recording(source.path):
        if source.since or source.until:
            raise UsageError(f"{name} is not a recording, so it has no time range", hint="omit --since and --until")
        if (found := recording_at(source.path)) is not None:
            if not found.memory_profiles:
                raise UsageError(f"{name} cannot be compared", hint="gpuwatch explain reads it")
            source.memory = masked_for_sending(found, redact=redact)
            yield source
            return
        document = read_document(source.path)
        if not isinstance(document, Diagnostic | Doctor | Run | Snapshot):
            raise UsageError(
                f"{name} cannot be compared",
                hint="give recordings, reports, snapshots or runs; for other documents, use gpuwatch compare",
            )
        # Redacted now: a comparison no longer tells which word is a host and which a user.
        source.document = masked_for_sending(document, redact=redact)
        yield source
        return
    with recording_of(source.path) as recording:
        assert recording.begin is not None
        assert recording.end is not None
        begin = recording.begin if source.since is None else parse_moment(source.since, recording.end)
        end = recording.end if source.until is None else parse_moment(source.until, recording.end)
        if begin > end or begin > recording.end or end < recording.begin:
            raise UsageError(
                f"nothing was recorded from {time_text(begin)} to {time_text(end)}",
                hint=f"{name} has {time_text(recording.begin)} to {time_text(recording.end)}",
            )
        source.begin, source.end = max(begin, recording.begin), min(end, recording.end)
        last = last_sample_of(recording, source.begin, source.end)
        if last is None:
            raise GpuwatchError(f"{name}: no sample can be read", hint="see gpuwatch record check")
        source.recording, source.last = recording, masked_for_sending(last, redact=redact)
        yield source


def _side_of(item: _Source, two: _Source) -> tuple[DiffSide, DiffSide]:
    if item.memory is not None and two.memory is not None:
        names = ("A", "B") if item.path.name == two.path.name else (item.path.name, two.path.name)
        return side_of_profiles(item.memory, names[0]), side_of_profiles(two.memory, names[1])
    for source, other in ((item, two), (two, item)):
        if source.memory is not None:
            raise UsageError(f"{file_name(source.path)} is a {source.memory.kind}, {file_name(other.path)} is not")
    step = step_for(max(item.end - item.begin, two.end - two.begin))
    same_machine = item.host is not None and item.host == two.host
    names = ("A", "B")
    hosts = (item.host, two.host)
    if None not in hosts and hosts[0] != hosts[1]:
        names = (str(hosts[0]), str(hosts[1]))

    def side(source: _Source, name: str) -> DiffSide:
        if source.document is not None:
            return side_of_document(source.document, name, cards=same_machine)
        assert source.recording is not None
        assert source.last is not None
        return side_of_recording(
            source.recording, source.begin, source.end, name, source.last, step, cards=same_machine
        )

    return side(item, names[0]), side(two, names[1])
