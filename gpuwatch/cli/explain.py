"""``gpuwatch explain``: what happened in a log, why, and what to do."""

from __future__ import annotations

import codecs
import os
import re
import shlex
import signal
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.decompress import decompressed
from gpuwatch.cli.memory_file import recording
from gpuwatch.cli.options import progress, progress_wanted
from gpuwatch.cli.output import check_output, output_option, publish, redact_option
from gpuwatch.core.errors import EXIT_FINDING, EXIT_OK, UsageError
from gpuwatch.core.formatting.terminal import file_name

if TYPE_CHECKING:
    from gpuwatch.cli.follow_input import InputFollower
    from gpuwatch.core.model.explanation import Explanation

_CHUNK = 1 << 18
_LONGEST_LINE = 1 << 16
"""Longer lines are cut: no framework writes them, and memory must stay constant."""
_LARGE = 8 << 20
"""Bytes. Without a terminal for progress, a larger log that takes more than a second is announced once."""
_MARK = 4
"""Bytes of the longest byte order mark."""
_BOMS = (
    ((codecs.BOM_UTF8,), "utf-8-sig"),
    ((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-32"),  # begins like UTF-16's
    ((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16"),
)
"""Python's codecs of these names skip the mark themselves."""


_EXAMPLES = """\b
Examples:
  gpuwatch explain train.log
  python train.py 2>&1 | tee train.log | gpuwatch explain -
  kubectl logs -f trainer | gpuwatch explain -
  gpuwatch explain snapshot.pickle
"""


@click.command(epilog=_EXAMPLES)
@click.argument("log", type=click.Path(path_type=Path, allow_dash=True), metavar="FILE|-")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (gpuwatch.explanation/1).")
@output_option
@redact_option
@click.pass_context
def explain(ctx: click.Context, log: Path, as_json: bool, output: Path | None, redact: bool) -> None:
    """Explain a TensorFlow or PyTorch log: what happened, and why.

    Files of other tools are recognised by their content: a profile of TensorFlow (*.xplane.pb), a snapshot of
    PyTorch's allocator (torch.cuda.memory._dump_snapshot), its memory timeline (*.raw.json.gz) and a device memory
    profile of JAX (memory.prof) tell who held the memory, the output of dcgmi diag -j which tests failed. Nothing in
    them is run.

    So are nvidia-bug-report.log.gz and the output of nvidia-smi -q (or -q -x) in any log, of which the GPUs are shown
    and judged. A log may be compressed (gzip, bzip2, xz, zstd).

    With -, the log is read from stdin until the program that writes it ends. On a terminal, causes are shown as soon
    as they are recognised; Ctrl+C (or SIGTERM) stops reading and prints the explanation.
    """
    from gpuwatch.cli.follow_input import InputFollower
    from gpuwatch.explain.diagnosis.explain import explain as explained
    from gpuwatch.explain.logs.log_parser import LogParser

    check_output(output)
    terminated = False
    if str(log) == "-":
        if sys.stdin is None:
            raise UsageError("cannot read stdin: it is closed")
        parser = LogParser()
        with InputFollower(parser, talk=progress_wanted()) as follower:
            document = explained(lines_of(sys.stdin.fileno(), log, follower), source="stdin", parser=parser)
        terminated = follower.ended_by == signal.SIGTERM
    else:
        document = explanation_of(log)
    publish(document, output, as_json=as_json, redact=redact)
    if terminated:
        ctx.exit(128 + signal.SIGTERM)
    bad = any(found.severity == "error" for found in document.findings)
    ctx.exit(EXIT_FINDING if bad else EXIT_OK)


def explanation_of(path: Path) -> Explanation:
    """The explanation of a file; a one-line :class:`UsageError` if it cannot be read."""
    from gpuwatch.explain.diagnosis.explain import explain as explained
    from gpuwatch.explain.logs.unfold import unfolded

    descriptor = _open(path)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_size == 0:
            raise UsageError(f"{file_name(path)} is empty")
        return recording(descriptor, path) or explained(unfolded(lines_of(descriptor, path)), source=str(path))
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        if path.is_dir():
            raise UsageError(f"cannot read {file_name(path)}: it is a folder")
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"cannot read {file_name(path)}: {error.strerror}") from error


def lines_of(descriptor: int, name: Path, follower: InputFollower | None = None) -> Iterator[str]:
    """The lines of a file or pipe as they arrive, in any encoding, with constant memory."""
    decoder: codecs.IncrementalDecoder | None = None
    rest = ""
    dropping = False
    shown, size, said = time.monotonic(), 0, progress_wanted()
    for chunk in decompressed(_chunks(descriptor, name, follower), "stdin" if str(name) == "-" else file_name(name)):
        size += len(chunk)
        if follower is None and time.monotonic() - shown > 1:
            shown = time.monotonic()
            progress(f"reading {size / 1e6:.1f} MB")
            if not said and size >= _LARGE:
                said = True
                click.echo(f"reading {file_name(name)}, which is large: {size / 1e6:.0f} MB so far", err=True)
        if decoder is None:
            _refuse_what_is_no_log(chunk, name)
            decoder = codecs.getincrementaldecoder(_encoding(chunk))("replace")
        text = decoder.decode(chunk)
        if "\0" in text:
            text = text.replace("\0", "")
        parts = text.split("\n")
        if dropping:
            if len(parts) == 1:
                continue
            parts[0] = rest  # its end is dropped
            dropping = False
        else:
            parts[0] = rest + parts[0]
        rest = parts.pop()
        if len(rest) > _LONGEST_LINE:
            rest, dropping = rest[:_LONGEST_LINE], True
        yield from parts
    if decoder is not None:
        rest += decoder.decode(b"", final=True)
    if rest:
        yield rest
    if follower is None:
        progress("")


def _refuse_what_is_no_log(start: bytes, name: Path) -> None:
    """Raises :class:`UsageError` for an archive, and for a gpuwatch document."""
    from gpuwatch.explain.diagnosis import explain_recording

    shown = "stdin" if str(name) == "-" else file_name(name)
    if start.startswith(b"PK\3\4"):
        raise UsageError(f"{shown} is an archive", hint=f"use unzip -p {shlex.quote(shown)} | gpuwatch explain -")
    recording = explain_recording.kind_of(start)
    if recording in ("TensorFlow profile", "PyTorch snapshot"):
        raise UsageError(f"{shown} is a {recording}, no log", hint="name the file: gpuwatch explain FILE")
    if start.lstrip(b"\xef\xbb\xbf \r\n").startswith(b"{") and (document := _OURS.search(start[:4096])):
        raise UsageError(
            f"{shown} is not a log but a gpuwatch document ({document[1].decode()})",
            hint=f"use gpuwatch report {shlex.quote(shown)}",
        )


_OURS = re.compile(rb'"schema"\s*:\s*"(gpuwatch\.[a-z]{1,20}/\d{1,3})"')


def _encoding(start: bytes) -> str:
    """The encoding by the byte order mark; without one, UTF-16 if every other byte is 0."""
    for marks, encoding in _BOMS:
        if start.startswith(marks):
            return encoding
    sample = start[:400]
    half = len(sample) // 2
    if half > 8:
        if sample[1::2].count(0) > 0.8 * half and sample[::2].count(0) == 0:
            return "utf-16-le"
        if sample[::2].count(0) > 0.8 * half and sample[1::2].count(0) == 0:
            return "utf-16-be"
    # Latin-1 and other 8-bit encodings differ only in letters that no recognised message has.
    return "utf-8"


def _chunks(descriptor: int, name: Path, follower: InputFollower | None) -> Iterator[bytes]:
    try:
        start = b""
        while (follower is None or follower.ready(descriptor)) and (chunk := os.read(descriptor, _CHUNK)):
            if len(start) < _MARK:
                # A pipe may deliver the byte order mark in pieces.
                start += chunk
                if len(start) < _MARK:
                    continue
                chunk = start
            yield chunk
        if 0 < len(start) < _MARK:
            yield start
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from error
