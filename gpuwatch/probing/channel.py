"""The way that a watched program's output takes through us, byte for byte.

Only stderr goes through us, because frameworks write their log there; stdout stays the program's own
descriptor. Where both are one file, terminal or pipe, both take the same way, so that their order stays as
it is (``tqdm.write`` depends on it). Where ours is a terminal, the program gets a terminal too, of the same
size; its stdin and its controlling terminal are untouched, so that keys and job control are the shell's.
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
from collections.abc import Callable
from contextlib import suppress

_PIPE_BYTES = 1 << 20
_TAIL = 4096
# The end of the output, where an escape sequence or a character in UTF-8 is not complete.
_OPEN = re.compile(
    rb"\x1b(?:[ -/]*|\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?)$"
    rb"|[\xc2-\xdf]$|[\xe0-\xef][\x80-\xbf]?$|[\xf0-\xf4][\x80-\xbf]{0,2}$"
)


class Channel:
    """A pipe or pseudo-terminal between the program and our stderr."""

    def __init__(self, *, wanted: bool = True) -> None:
        """``wanted``: False leaves the program its own descriptors, and us without its log."""
        self.read = self.write = -1
        self.merged = False
        self.terminal = False
        self.broken = False
        """Whoever read our stderr is gone."""
        self._tail = b""
        try:
            err = os.fstat(2)
        except OSError:
            return  # closed: there is nothing to pass on
        self.terminal = os.isatty(2)
        if not wanted:
            return
        with suppress(OSError):
            out = os.fstat(1)
            self.merged = (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino)
        if self.terminal:
            self.read, self.write = pty.openpty()
            tty.setraw(self.write)  # our terminal does the rest: nothing may be translated twice
            self.resize()
        else:
            self.read, self.write = os.pipe()
            with suppress(OSError):  # beyond what this user may have in pipes
                fcntl.fcntl(self.write, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    @property
    def open(self) -> bool:
        """Whether there is one."""
        return self.read >= 0

    @property
    def drawable(self) -> bool:
        """Whether all that reaches this terminal goes through us, so that we may draw between it."""
        return self.open and self.terminal and (self.merged or not os.isatty(1))

    def size(self) -> tuple[int, int]:
        """Rows and columns of our terminal; (0, 0) where it does not tell."""
        try:
            rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(2, termios.TIOCGWINSZ, bytes(8)))
        except OSError:
            return 0, 0
        return rows, columns

    def resize(self, kept: int = 0) -> None:
        """The program's terminal becomes as large as ours, less ``kept`` rows."""
        if not self.open or not self.terminal:
            return
        with suppress(OSError):
            rows, columns, x, y = struct.unpack("HHHH", fcntl.ioctl(2, termios.TIOCGWINSZ, bytes(8)))
            fcntl.ioctl(self.read, termios.TIOCSWINSZ, struct.pack("HHHH", max(rows - kept, 0), columns, x, y))

    def pass_on(self, chunk: bytes) -> None:
        """The program's bytes, to our stderr."""
        self.put(chunk)
        if self.terminal:
            self._tail = (self._tail + chunk)[-_TAIL:]

    def put(self, data: bytes) -> None:
        """Bytes to our stderr, all of them or until nobody reads it any more."""
        view = memoryview(data)
        while view and not self.broken:
            try:
                view = view[os.write(2, view) :]
            except BlockingIOError:
                time.sleep(0.005)
            except OSError:
                self.broken = True

    @property
    def between(self) -> bool:
        """Whether bytes of ours would not cut a sequence or a character of the program's in two."""
        return _OPEN.search(self._tail[-_TAIL:]) is None

    @property
    def at_line_start(self) -> bool:
        """Whether the program's last byte ended a line."""
        return not self._tail or self._tail.endswith(b"\n")

    def close(self, then: Callable[[], None] | None = None) -> None:
        """Our end of it; the program's writes fail from now on, unless somebody else holds it."""
        for descriptor in (self.read, self.write):
            if descriptor >= 0:
                os.close(descriptor)
        self.read = self.write = -1
        if then is not None:
            then()

    def given(self) -> None:
        """The program has its end: ours of that is closed."""
        if self.write >= 0:
            os.close(self.write)
            self.write = -1
