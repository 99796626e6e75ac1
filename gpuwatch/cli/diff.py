"""``gpuwatch diff``: what differs between two machines, or between two days of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from gpuwatch.cli.explain import explanation_of, trace_explanation_at
from gpuwatch.cli.input_files import is_recording, read_document, read_recording, recorded_range
from gpuwatch.cli.output import Output, output_options
from gpuwatch.cli.progress import progress
from gpuwatch.cli.shared_options import period_options
from gpuwatch.core.errors import EXIT_DIFFERENT, GpuwatchError, UsageError
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.masking.masked_documents import masked_for_sending
from gpuwatch.core.model.diagnostic_report import Diagnostic
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.share.reports import diff_report
from gpuwatch.share.reports.diff_sides import (
    ComparableDocument,
    DiffSide,
    last_sample_of,
    memory_side,
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


_START_BYTES = 4096
_SMI_QUERY_HEADS = (b"==NVSMI LOG==", b"<nvidia_smi_log")


@dataclass(frozen=True, slots=True)
class _Source:
    """A file to compare, and its content."""

    path: Path
    content: ComparableDocument | Explanation | Recording
    """An :class:`Explanation` is of a snapshot or profile of a program's memory."""
    begin: float = 0.0
    """Of a recording: the range to compare, in seconds since the epoch, and its last sample."""
    end: float = 0.0
    last: Snapshot | None = None

    @property
    def host(self) -> str | None:
        document = self.last or self.content
        if isinstance(document, Snapshot):
            return document.host.hostname
        return None if isinstance(document, Explanation | Recording) else document.host


@click.command(epilog=_EXAMPLES)
@click.argument("first", type=click.Path(path_type=Path), metavar="A")
@click.argument("second", type=click.Path(path_type=Path), metavar="B")
@period_options()
@click.option("--a-since", metavar="TIME", help="Start in A, if it differs from B's.")
@click.option("--a-until", metavar="TIME", help="End in A.")
@click.option("--b-since", metavar="TIME", help="Start in B.")
@click.option("--b-until", metavar="TIME", help="End in B.")
@output_options("Print JSON (gpuwatch.diff/1).")
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
    output: Output,
) -> None:
    """Compare two machines, or two days of one: what changed?

    A and B are recordings, reports (gpuwatch report, doctor), snapshots, runs or files with the output of nvidia-smi -q
    (or -q -x), of the same kind or with content in common. Shows which versions, GPUs, limits and modes differ, which
    findings came and went and, for recordings, which metrics differ by more than their normal variation. For two
    snapshots or profiles of a program's memory, shows what grew, by line.

    Exits with 0 if nothing differs, 3 if something does, 2 if A or B is missing or cannot be compared, 1 if one is
    damaged or gpuwatch failed.
    """
    with (
        _open_source(first, a_since or since, a_until or until, output.redact) as source,
        _open_source(second, b_since or since, b_until or until, output.redact) as other,
    ):
        progress("comparing")
        document = diff_report.diff(*_sides(source, other))
        progress("")
        output.publish(document)
        if document.differs:
            ctx.exit(EXIT_DIFFERENT)


@contextmanager
def _open_source(path: Path, since: str | None, until: str | None, redact: bool) -> Iterator[_Source]:
    name = printable_path(path)
    progress(f"reading {name}")
    if is_recording(path):
        with read_recording(path) as recording:
            begin, end = recorded_range(recording, since, until)
            begin, end = max(begin, recording.begin or begin), min(end, recording.end or end)
            last = last_sample_of(recording, begin, end)
            if last is None:
                raise GpuwatchError(f"{name}: no sample can be read", hint="see gpuwatch record check")
            yield _Source(path, recording, begin, end, masked_for_sending(last, redact=redact))
        return
    if since or until:
        raise UsageError(f"{name} is not a recording, so it has no time range", hint="omit --since and --until")
    document = trace_explanation_at(path) or _smi_query_machine(path) or read_document(path)
    if not isinstance(document, Diagnostic | Doctor | Explanation | Run | Snapshot):
        raise UsageError(
            f"{name} cannot be compared",
            hint="give recordings, reports, snapshots, runs or the output of nvidia-smi -q; for other documents, use"
            " gpuwatch compare",
        )
    if isinstance(document, Explanation) and not document.memory_profiles:
        raise UsageError(f"{name} cannot be compared", hint="gpuwatch explain reads it")
    # Redacted now: a comparison no longer tells which word is a host and which a user.
    yield _Source(path, masked_for_sending(document, redact=redact))


def _smi_query_machine(path: Path) -> Snapshot | None:
    """The machine that a file with the output of nvidia-smi -q or -q -x shows; None for another file."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        start = file.read(_START_BYTES)
    return explanation_of(path).machine if any(head in start for head in _SMI_QUERY_HEADS) else None


def _sides(first: _Source, second: _Source) -> tuple[DiffSide, DiffSide]:
    names = ("A", "B")
    if isinstance(first.content, Explanation) and isinstance(second.content, Explanation):
        if first.path.name != second.path.name:
            names = (first.path.name, second.path.name)
        return memory_side(first.content, names[0]), memory_side(second.content, names[1])
    same_machine = first.host is not None and first.host == second.host
    if first.host is not None and second.host is not None and not same_machine:
        names = (first.host, second.host)
    step = step_for(max(first.end - first.begin, second.end - second.begin))

    def side(source: _Source, other: _Source, name: str) -> DiffSide:
        content = source.content
        if isinstance(content, Explanation):
            raise UsageError(f"{printable_path(source.path)} is a {content.kind}, {printable_path(other.path)} is not")
        if isinstance(content, Recording):
            assert source.last is not None
            return side_of_recording(
                content, source.begin, source.end, name, source.last, step, with_card_ids=same_machine
            )
        return side_of_document(content, name, with_card_ids=same_machine)

    return side(first, second, names[0]), side(second, first, names[1])
