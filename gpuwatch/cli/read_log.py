"""The lines of a text file or pipe: compressed or not, in any encoding, with constant memory; and waiting for them.

While it waits for stdin, a terminal shows causes and a status line.
"""

from __future__ import annotations

import bz2
import codecs
import importlib
import lzma
import os
import re
import select
import shlex
import signal
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from gpuwatch.cli.output import print_line
from gpuwatch.cli.progress import progress
from gpuwatch.core import input_size_limits
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.safe_text import cut_line

if TYPE_CHECKING:
    from gpuwatch.explain.logs.program_starts import LogReader

_MAX_UNPACKED_BYTES = 1 << 18


class _Decompressor(Protocol):
    """Those of zlib, which gives back as ``unconsumed_tail`` what it did not look at yet, and of bz2 and lzma."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /, max_length: int) -> bytes: ...


class _Zstd:
    """The zstandard package: hands out all text of its input, of which it gets little at once."""

    def __init__(self, module: object) -> None:
        make: Callable[..., object] = module.ZstdDecompressor  # type: ignore[attr-defined]
        self._inner = make(max_window_size=input_size_limits.UNPACKING.bytes).decompressobj()  # type: ignore[attr-defined]
        self.eof = False
        self.unused_data = self.unconsumed_tail = b""

    def decompress(self, data: bytes, /, max_length: int) -> bytes:
        # A block of zstd is at most 128 KiB of text; 256 bytes of input hold some dozens of them.
        text: bytes = self._inner.decompress(data[:256])
        self.unconsumed_tail = data[256:]
        self.eof = self._inner.eof
        if self.eof:
            self.unused_data = self._inner.unused_data + self.unconsumed_tail
        return text


_MakeDecompressor = Callable[[str], _Decompressor]


def _make_zstd(name: str) -> _Decompressor:
    try:
        standard = importlib.import_module("compression.zstd")  # Python 3.14
    except ImportError:
        try:
            return _Zstd(importlib.import_module("zstandard"))
        except ImportError:
            raise UsageError(
                f"{name} is compressed with zstd, which this Python cannot read",
                hint=f"zstdcat {name} | gpuwatch explain -, or pip install zstandard",
            ) from None
    found: _Decompressor = standard.ZstdDecompressor()
    return found


_COMPRESSION_FORMATS: tuple[tuple[bytes, _MakeDecompressor], ...] = (
    (b"\x1f\x8b", lambda _: zlib.decompressobj(wbits=31)),
    (b"BZh", lambda _: bz2.BZ2Decompressor()),
    (b"\xfd7zXZ\0", lambda _: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=input_size_limits.UNPACKING.bytes)),
    (b"(\xb5/\xfd", _make_zstd),
)


def decompressed(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The chunks themselves, or the text that they are compressed from; :class:`UsageError` if they are broken."""
    first = next(chunks, b"")
    make = next((make for mark, make in _COMPRESSION_FORMATS if first.startswith(mark)), None)
    if make is None:
        if first:
            yield first
            yield from chunks
        return
    total = 0
    try:
        for text in _decompressed_texts(first, chunks, make, name):
            total += len(text)
            if total > input_size_limits.LOG.bytes:
                raise UsageError(f"cannot read {name}: {input_size_limits.LOG.too_large}")
            yield text
    except (zlib.error, OSError, EOFError, lzma.LZMAError, ValueError) as error:
        raise UsageError(f"cannot decompress {name}: {str(error)[:100]}") from error
    except Exception as error:
        if type(error).__name__ == "ZstdError":
            raise UsageError(f"cannot decompress {name}: {str(error)[:100]}") from error
        raise


def _decompressed_texts(first: bytes, chunks: Iterator[bytes], make: _MakeDecompressor, name: str) -> Iterator[bytes]:
    reader, data = make(name), first
    while True:
        text = reader.decompress(data, _MAX_UNPACKED_BYTES)
        data = getattr(reader, "unconsumed_tail", b"")
        if text:
            yield text
        if reader.eof:
            # Some write a file as several streams, and pad it with zeros.
            data = reader.unused_data.lstrip(b"\0") or next(chunks, b"")
            if not data:
                return
            reader = make(name)
        elif not text and not data:
            data = next(chunks, b"")
            if not data:
                raise EOFError("it is cut off")


_READ_BYTES = 1 << 18
_MAX_BOM_BYTES = 4
"""Bytes of the longest byte order mark."""
_BOMS = (
    ((codecs.BOM_UTF8,), "utf-8-sig"),
    ((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-32"),  # begins like UTF-16's
    ((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16"),
)
"""Python's codecs of these names skip the mark themselves."""


def read_lines(descriptor: int, name: Path, follower: InputFollower | None = None) -> Iterator[str]:
    """The lines of a file or pipe as they arrive, in any encoding, with constant memory."""
    decoder: codecs.IncrementalDecoder | None = None
    rest = ""
    dropping = False
    shown, size, most = time.monotonic(), 0, input_size_limits.LOG_LINE.bytes
    source = "stdin" if str(name) == "-" else printable_path(name)
    for chunk in decompressed(_read_chunks(descriptor, name, follower), source):
        size += len(chunk)
        if follower is None and time.monotonic() - shown > 1:
            shown = time.monotonic()
            progress(f"reading {source}: {size / 1e6:.1f} MB")
        if decoder is None:
            _refuse_other_files(chunk, source)
            decoder = codecs.getincrementaldecoder(_detect_encoding(chunk))("replace")
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
        yield from (cut_line(part, most) for part in parts)
        whole = rest
        rest = cut_line(rest, most)
        dropping = len(rest) == most < len(whole)  # of a progress bar fewer are kept, and the next states count
    if decoder is not None:
        rest += decoder.decode(b"", final=True)
    if rest:
        yield rest


def _refuse_other_files(start: bytes, source: str) -> None:
    """Raises :class:`UsageError` for an archive, and for a gpuwatch document."""
    from gpuwatch.explain.diagnosis import explain_trace_file

    if start.startswith(b"PK\3\4"):
        raise UsageError(f"{source} is an archive", hint=f"use unzip -p {shlex.quote(source)} | gpuwatch explain -")
    kind = explain_trace_file.file_kind(start)
    if kind in ("TensorFlow profile", "PyTorch snapshot"):
        raise UsageError(f"{source} is a {kind}, not a log", hint="name the file: gpuwatch explain FILE")
    if start.lstrip(b"\xef\xbb\xbf \r\n").startswith(b"{") and (document := _GPUWATCH_SCHEMA.search(start[:4096])):
        raise UsageError(
            f"{source} is not a log but a gpuwatch document ({document[1].decode()})",
            hint=f"use gpuwatch report {shlex.quote(source)}",
        )


_GPUWATCH_SCHEMA = re.compile(rb'"schema"\s*:\s*"(gpuwatch\.[a-z]{1,20}/\d{1,3})"')


def _detect_encoding(start: bytes) -> str:
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
    # Latin-1 and other 8-bit encodings differ only in letters that no recognized message has.
    return "utf-8"


def _read_chunks(descriptor: int, name: Path, follower: InputFollower | None) -> Iterator[bytes]:
    try:
        start = b""
        while (follower is None or follower.ready(descriptor)) and (chunk := os.read(descriptor, _READ_BYTES)):
            if len(start) < _MAX_BOM_BYTES:
                # A pipe may deliver the byte order mark in pieces.
                start += chunk
                if len(start) < _MAX_BOM_BYTES:
                    continue
                chunk = start
            yield chunk
        if 0 < len(start) < _MAX_BOM_BYTES:
            yield start
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from error


_QUIET_SECONDS = 0.3
"""Seconds without a line after which the log is judged: most bursts are over by then."""
_EXAMINE_SECONDS = 2.0
"""Seconds between judgements while lines keep coming."""
_SILENT_SECONDS = 1.0
"""Seconds of silence after which a status line is shown."""
_MAX_FINDINGS_AT_ONCE = 3
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
            lines = self._reader.parser.facts.line_count
            self._status_shown = True
            so_far = f"{count_text(lines, 'line')} so far"
            progress(f"waiting for more ({so_far}); Ctrl+C shows the explanation")

    def _print_new_causes(self) -> None:
        """Prints new causes, each with its line and what to do."""
        self._examined_at = time.monotonic()
        facts = self._reader.parser.facts
        if facts.line_count == self._examined_lines:
            return
        self._examined_lines = facts.line_count
        from gpuwatch.explain.diagnosis.explain_log import findings_so_far

        problems = [found for found in findings_so_far(facts) if found.severity in ("error", "warning")]
        for found in problems[:_MAX_FINDINGS_AT_ONCE]:
            key = (found.id, found.device_uuid or "")
            if key in self._shown_findings:
                continue
            self._shown_findings.add(key)
            likely = "" if found.certainty == "fact" else "likely: "
            self._print_line(f"gpuwatch: line {facts.line_count:,}: {likely}{found.title} ({found.id})")
            if found.action:
                self._print_line(f"          {found.action}")

    def _print_line(self, line: str) -> None:
        self._clear()
        print_line(line, links=True)

    def _clear(self) -> None:
        if self._status_shown:
            self._status_shown = False
            progress("")
