"""``gpuwatch explain``: what happened in a log, why, and what to do."""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
import time
import zlib
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

import click

from gpuwatch.cli.output import check_writable, output_option, print_line, publish, redact_option
from gpuwatch.cli.progress import progress, progress_wanted
from gpuwatch.cli.read_log import read_lines
from gpuwatch.core.errors import EXIT_FINDING, EXIT_OK, UsageError
from gpuwatch.core.formatting.file_names import file_name

if TYPE_CHECKING:
    from gpuwatch.core.model.explanation import Explanation
    from gpuwatch.explain.logs.program_starts import LogReader

_QUIET_SECONDS = 0.3
"""Seconds without a line after which the log is judged: most bursts are over by then."""
_EXAMINE_SECONDS = 2.0
"""Seconds between judgements while lines keep coming."""
_SILENT_SECONDS = 1.0
"""Seconds of silence after which a status line is shown."""
_MAX_FINDINGS_AT_ONCE = 3
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM)

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

    Files from other tools are recognized by their content and never executed. TensorFlow profiles (*.xplane.pb),
    PyTorch memory snapshots (torch.cuda.memory._dump_snapshot) and timelines (*.raw.json.gz), and JAX device memory
    profiles (memory.prof) show who held the memory; the output of dcgmi diag -j shows which tests failed.

    nvidia-bug-report.log.gz and the output of nvidia-smi -q (or -q -x), also inside a log, show the GPUs and what is
    wrong with them. Logs may be compressed (gzip, bzip2, xz, zstd).

    With -, the log is read from stdin until the program that writes it ends. On a terminal, causes are shown as soon
    as they are recognized; Ctrl+C (or SIGTERM) stops reading and prints the explanation.
    """
    from gpuwatch.explain.diagnosis import explain_log
    from gpuwatch.explain.logs.program_starts import LogReader

    check_writable(output)
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
    publish(document, output, as_json=as_json, redact=redact)
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
            raise UsageError(f"cannot read {file_name(path)}: it is a folder")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"cannot read {file_name(path)}: {error.strerror}") from error
    progress(f"reading {file_name(path)}")
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_size == 0:
            raise UsageError(f"{file_name(path)} is empty")
        reader = LogReader()
        lines = join_wrapped_lines(read_lines(descriptor, path), lambda: reader.parser.count_line())
        return trace_explanation(descriptor, path) or explain_log.explain(lines, source=str(path), reader=reader)
    finally:
        os.close(descriptor)
        progress("")


def trace_explanation(descriptor: int, path: Path) -> Explanation | None:
    """The explanation of a trace or profile of another tool, read whole within a bound; None for a log, or a pipe."""
    from gpuwatch.explain.diagnosis import explain_trace_file
    from gpuwatch.explain.traces.invalid_trace import InvalidTrace

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
        raise UsageError(f"cannot read {file_name(path)}, a {kind}: {error}") from error


def trace_explanation_at(path: Path) -> Explanation | None:
    """The same of a path; None also if it cannot be opened."""
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


class InputFollower:
    """Waits for a pipe; on a terminal it shows causes and a status line meanwhile."""

    def __init__(self, reader: LogReader, *, show_progress: bool) -> None:
        self._reader = reader
        self._show_progress = show_progress
        self._shown_findings: set[tuple[str, str]] = set()
        self._examined_lines = 0
        self._examined_at = self._last_data_at = time.monotonic()
        self._status_shown = False
        self._is_terminal_input = show_progress and sys.stdin is not None and sys.stdin.isatty()
        self.ended_by: int | None = None
        """The signal that ended the reading."""
        self._wake_read_end, self._wake_write_end = os.pipe()
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._interrupt) for number in _END_SIGNALS}
        if self._is_terminal_input:
            self._print_line("gpuwatch: paste a log here, then press Ctrl+D")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()
        if self.ended_by is None:
            for number, handler in self._before.items():
                signal.signal(number, handler)  # type: ignore[arg-type]
        os.close(self._wake_read_end)
        os.close(self._wake_write_end)

    def ready(self, descriptor: int) -> bool:
        """Waits for data or the end of file; False after Ctrl+C or SIGTERM."""
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        waiting.register(self._wake_read_end, select.POLLIN)
        while self.ended_by is None:
            # Once the status line is shown there is nothing to do until data arrives.
            found = waiting.poll(None if not self._show_progress or self._status_shown else _QUIET_SECONDS * 1000)
            if any(number == descriptor for number, _ in found):
                self._last_data_at = time.monotonic()
                self._clear()
                if self._show_progress and self._last_data_at - self._examined_at > _EXAMINE_SECONDS:
                    self._print_new_causes()
                return True
            if self._show_progress and not found:
                self._pause()
        return False

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.ended_by = number
        for ending in _END_SIGNALS:
            signal.signal(ending, signal.SIG_DFL)  # a second signal ends the program
        os.write(self._wake_write_end, b"!")

    def _pause(self) -> None:
        self._print_new_causes()
        # Not between pasted lines, which the terminal shows itself.
        if (
            time.monotonic() - self._last_data_at > _SILENT_SECONDS
            and not self._status_shown
            and not self._is_terminal_input
        ):
            lines = self._reader.parser.facts.lines
            self._status_shown = True
            so_far = f"{lines:,} line{'s' if lines != 1 else ''} so far"
            progress(f"waiting for more ({so_far}); Ctrl+C shows the explanation")

    def _print_new_causes(self) -> None:
        """Prints new causes, each with its line and what to do."""
        self._examined_at = time.monotonic()
        facts = self._reader.parser.facts
        if facts.lines == self._examined_lines:
            return
        self._examined_lines = facts.lines
        from gpuwatch.explain.diagnosis.explain_log import findings_so_far

        problems = [found for found in findings_so_far(facts) if found.severity in ("error", "warning")]
        for found in problems[:_MAX_FINDINGS_AT_ONCE]:
            key = (found.id, found.device_uuid or "")
            if key in self._shown_findings:
                continue
            self._shown_findings.add(key)
            likely = "" if found.certainty == "fact" else "likely: "
            self._print_line(f"gpuwatch: line {facts.lines:,}: {likely}{found.title} ({found.id})")
            if found.action:
                self._print_line(f"          {found.action}")

    def _print_line(self, line: str) -> None:
        self._clear()
        print_line(line, links=True)

    def _clear(self) -> None:
        if self._status_shown:
            self._status_shown = False
            progress("")
