"""``gpuwatch explain``: what happened in a log, why, and what to do."""

from __future__ import annotations

import os
import signal
import stat
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.output import Output, output_options
from gpuwatch.cli.progress import progress, progress_wanted
from gpuwatch.cli.read_log import InputFollower, read_lines
from gpuwatch.core.errors import EXIT_FINDING, EXIT_OK, UsageError
from gpuwatch.core.formatting.path_text import printable_path

if TYPE_CHECKING:
    from gpuwatch.core.model.explanation import Explanation


_EXAMPLES = """\b
Examples:
  gpuwatch explain train.log
  python train.py 2>&1 | tee train.log | gpuwatch explain -
  kubectl logs -f trainer | gpuwatch explain -
  gpuwatch explain snapshot.pickle
"""


@click.command(epilog=_EXAMPLES)
@click.argument("log", type=click.Path(path_type=Path, allow_dash=True), metavar="FILE|-")
@output_options("Print JSON (gpuwatch.explanation/1).")
@click.pass_context
def explain(ctx: click.Context, log: Path, output: Output) -> None:
    """Explain a TensorFlow or PyTorch log: what happened, and why.

    Files from other tools are recognized by their content and never executed. TensorFlow profiles (*.xplane.pb),
    PyTorch memory snapshots (torch.cuda.memory._dump_snapshot) and timelines (*.raw.json.gz), and JAX device memory
    profiles (memory.prof) show who held the memory; the output of dcgmi diag -j shows which tests failed.

    nvidia-bug-report.log.gz and the output of nvidia-smi -q (or -q -x), also inside a log, show the GPUs and what is
    wrong with them. Logs may be compressed (gzip, bzip2, xz, zstd).

    With -, the log is read from stdin until the program that writes it ends. On a terminal, causes are shown as soon
    as they are recognized; Ctrl+C (or SIGTERM) stops reading and prints the explanation.

    Exits with 3 if a finding is an error.
    """
    from gpuwatch.explain.diagnosis import explain_log
    from gpuwatch.explain.logs.program_starts import LogReader

    terminated = False
    if str(log) == "-":
        if sys.stdin is None:
            raise UsageError("cannot read stdin: it is closed")
        reader = LogReader()
        with InputFollower(reader, show_progress=progress_wanted()) as follower:
            document = explain_log.explain(read_lines(sys.stdin.fileno(), log, follower), source="stdin", reader=reader)
        terminated = follower.ended_by == signal.SIGTERM
    else:
        document = explanation_of(log)
    output.publish(document)
    if terminated:
        ctx.exit(128 + signal.SIGTERM)
    bad = any(found.severity == "error" for found in document.findings)
    ctx.exit(EXIT_FINDING if bad else EXIT_OK)


def explanation_of(path: Path) -> Explanation:
    """The explanation of a file; a one-line :class:`UsageError` if it cannot be read."""
    from gpuwatch.explain.diagnosis import explain_log
    from gpuwatch.explain.logs.program_starts import LogReader
    from gpuwatch.explain.logs.wrapped_lines import join_wrapped_lines

    try:
        if path.is_dir():
            raise UsageError(f"cannot read {printable_path(path)}: it is a folder")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"cannot read {printable_path(path)}: {error.strerror}") from error
    progress(f"reading {printable_path(path)}")
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_size == 0:
            raise UsageError(f"{printable_path(path)} is empty")
        reader = LogReader()
        lines = join_wrapped_lines(read_lines(descriptor, path), lambda: reader.parser.count_line())
        return trace_explanation(descriptor, path) or explain_log.explain(lines, source=str(path), reader=reader)
    finally:
        os.close(descriptor)
        progress("")


def trace_explanation(descriptor: int, path: Path) -> Explanation | None:
    """The explanation of a trace or profile of another tool, read whole within a bound; None for a log, or a pipe."""
    from gpuwatch.explain.diagnosis import explain_trace_file
    from gpuwatch.explain.traces import InvalidTrace

    try:
        start = os.pread(descriptor, explain_trace_file.START_BYTES, 0)
    except OSError:
        return None  # a pipe, or unreadable: reading it as a log says so
    packed = start.startswith(b"\x1f\x8b")  # gzip
    kind = explain_trace_file.file_kind(_inflated(start, explain_trace_file.START_BYTES) if packed else start)
    if kind is None:
        return None
    limit = explain_trace_file.LIMITS[kind]
    with os.fdopen(os.dup(descriptor), "rb") as file:
        content = file.read(limit.bytes + 1)
    if packed:
        content = _inflated(content, limit.bytes + 1)
    try:
        if len(content) > limit.bytes:
            raise InvalidTrace(limit.too_large)
        return explain_trace_file.explain_trace_file(kind, content, str(path))
    except InvalidTrace as error:
        raise UsageError(f"cannot read {printable_path(path)}, a {kind}: {error}") from error


def trace_explanation_at(path: Path) -> Explanation | None:
    """What :func:`trace_explanation` gives of the file at a path; None also if it cannot be opened."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return trace_explanation(descriptor, path)
    finally:
        os.close(descriptor)


def _inflated(data: bytes, most: int) -> bytes:
    """Up to ``most`` bytes from the start of a gzip file's content; of a truncated file, what can be read."""
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, most)
    except zlib.error:
        return b""
