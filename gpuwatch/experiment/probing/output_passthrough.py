"""Passes a watched program's output through gpuwatch, byte for byte.

Only stderr is intercepted, because frameworks log there; stdout stays the program's own descriptor. If both are the
same file, terminal or pipe, both are intercepted, which keeps their order (``tqdm.write`` depends on it). If our
stderr is a terminal, the program gets a pseudo-terminal of the same size; its stdin and controlling terminal are
untouched, so keys and job control still work.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
import time
import tty
from contextlib import suppress
from pathlib import Path

_PIPE_BYTES = 1 << 20
_TAIL_BYTES = 4096
_MAX_FILE_BYTES = 64 << 20
"""Bytes of output that are kept in a file."""
# Output that ends in an incomplete escape sequence or UTF-8 character.
_INCOMPLETE = re.compile(
    rb"\x1b(?:[ -/]*|\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?)$"
    rb"|[\xc2-\xdf]$|[\xe0-\xef][\x80-\xbf]?$|[\xf0-\xf4][\x80-\xbf]{0,2}$"
)


class OutputChannel:
    """A pipe or pseudo-terminal between the program and our stderr, or a file."""

    def __init__(self, *, intercept: bool = True, file: Path | None = None) -> None:
        """``intercept``: False leaves the program its own stderr; its log is not read.

        ``file``: a new file, which gets both stdout and stderr. OSError if it cannot be made.
        """
        self.read_fd = self.write_fd = -1
        self._file: int | None = None
        self._free_file_bytes = _MAX_FILE_BYTES
        """Bytes that the file may still take."""
        self.stdout_is_merged = False
        self.is_terminal = False
        self.stderr_is_closed = False
        """Nobody reads our stderr any more."""
        self._tail = b""
        if file is not None:
            self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            self.read_fd, self.write_fd = os.pipe()
            self.stdout_is_merged = True
            return
        try:
            os.fstat(2)
        except OSError:
            return  # closed: output has nowhere to go
        self.is_terminal = os.isatty(2)
        if not intercept:
            return
        with suppress(OSError):
            self.stdout_is_merged = os.path.sameopenfile(1, 2)
        if self.is_terminal:
            self.read_fd, self.write_fd = pty.openpty()
            tty.setraw(self.write_fd)  # the real terminal translates newlines and the like, once
            self.resize()
        else:
            self.read_fd, self.write_fd = os.pipe()
            with suppress(OSError):  # above this user's limit for pipes
                fcntl.fcntl(self.write_fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    @property
    def is_open(self) -> bool:
        """Whether the program's output is intercepted."""
        return self.read_fd >= 0

    @property
    def can_draw(self) -> bool:
        """Whether all output to this terminal passes through us, so that we can draw in between."""
        return self.is_open and self.is_terminal and (self.stdout_is_merged or not os.isatty(1))

    def size(self) -> tuple[int, int]:
        """Rows and columns of our terminal; (0, 0) if unknown."""
        try:
            return termios.tcgetwinsize(2)
        except termios.error:
            return 0, 0

    def resize(self, reserved_rows: int = 0) -> None:
        """Makes the program's terminal as large as ours, less ``reserved_rows`` rows."""
        if not self.is_open or not self.is_terminal:
            return
        with suppress(OSError):
            rows, columns, x, y = struct.unpack("HHHH", fcntl.ioctl(2, termios.TIOCGWINSZ, bytes(8)))
            fcntl.ioctl(
                self.read_fd, termios.TIOCSWINSZ, struct.pack("HHHH", max(rows - reserved_rows, 0), columns, x, y)
            )

    def pass_on(self, chunk: bytes) -> None:
        """Writes the program's bytes to our stderr, or to the file as long as that is not full."""
        if self._file is not None:
            with suppress(OSError):  # the disk is full, or all was read: the program is not to blame
                self._free_file_bytes -= os.write(self._file, chunk[: self._free_file_bytes])
            return
        self.write_stderr(chunk)
        if self.is_terminal:
            self._tail = (self._tail + chunk)[-_TAIL_BYTES:]

    def write_stderr(self, data: bytes) -> None:
        """Writes all of ``data`` to our stderr, unless nobody reads it any more."""
        unwritten = memoryview(data)
        while unwritten and not self.stderr_is_closed:
            try:
                unwritten = unwritten[os.write(2, unwritten) :]
            except BlockingIOError:
                time.sleep(0.005)
            except OSError:
                self.stderr_is_closed = True

    @property
    def can_write(self) -> bool:
        """Whether we can write now without splitting an escape sequence or a character of the program."""
        return _INCOMPLETE.search(self._tail) is None

    @property
    def at_line_start(self) -> bool:
        """Whether the program's last byte ended a line."""
        return not self._tail or self._tail.endswith(b"\n")

    def close(self) -> None:
        """Closes our end: the program's writes fail from now on, unless another process has it open too."""
        self.close_write_end()
        if self.read_fd >= 0:
            os.close(self.read_fd)
            self.read_fd = -1
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def close_write_end(self) -> None:
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1
