"""Textual's terminal driver, changed to sleep while there is no input.

Textual's own driver looks for input ten times a second. Its parser of keys is private: without it, Textual reads.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from codecs import getincrementaldecoder
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver

from gpuwatch.core.formatting.terminal_support import SYNC_END, SYNC_START
from gpuwatch.ui.widgets.textual_internals import private_attribute

try:
    from textual._parser import ParseError
    from textual._xterm_parser import XTermParser
except ImportError:
    XTermParser = None  # type: ignore[assignment,misc]

_MODES = (1000, 1003, 1015, 1006, 1016, 1004, 2004, 2048)
"""Modes of the terminal that Textual switches on: mouse, focus, pasted text, changes of size."""
_RESTORE = r"\033[<u" + "".join(rf"\033[?{mode}l" for mode in _MODES) + r"\033[?7h\033[?1049l\033[?25h"
_SHELL_SCRIPT = f"trap '' INT QUIT TERM TSTP TTOU; read -r left || printf '{_RESTORE}'"
_TIMEOUT_SECONDS = 5.0
"""Seconds in which that shell has to end."""


def guard_screen(terminal: int) -> subprocess.Popen[bytes]:
    """Starts a shell that waits at a pipe: its end without a word means that nobody has restored the screen.

    ``terminal``: the descriptor to which the screen is drawn. Raises :class:`OSError` without ``/bin/sh``.
    """
    command = ["/bin/sh", "-c", _SHELL_SCRIPT]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=terminal, stderr=subprocess.DEVNULL)


_POLL_MILLISECONDS = 50
"""Milliseconds between two looks at the parser, while an Esc may begin a sequence."""
_ALTERNATE_SCREEN = "\x1b[?1049h"


class _ClosableFile:
    """A terminal that may be closed at any time; later output is discarded.

    Textual's writer thread must not end with an error, because others wait for it.
    """

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class TerminalDriver(LinuxDriver):
    """Waits for input without polling; can start on an alternate screen that is already on."""

    has_alternate_screen: ClassVar[bool] = False
    """The alternate screen is on with the first frame: entering it again would clear it."""
    started: ClassVar[bool] = False
    """A driver has started, and restores the screen when it ends."""
    _held_output: list[str] | None = None
    """Output held back until :meth:`release`."""
    _wake: tuple[int, int] | None = None
    """A pipe that ends the wait for input."""
    _guard: subprocess.Popen[bytes] | None = None
    """See :func:`guard_screen`."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        self.app = app
        app.terminal = self
        if app.session.alerts is not None:
            app.session.alerts.write_to(self.write_beside)

    def start_application_mode(self) -> None:
        """See :class:`LinuxDriver`. Waits until this process is in the foreground, for example after ``bg``."""
        while not self._in_foreground():
            os.kill(os.getpid(), signal.SIGSTOP)
        self._listen()
        self._wake = os.pipe()
        file = private_attribute(self, "_file", object)
        if file is not None and not isinstance(file, _ClosableFile):
            self._file = _ClosableFile(file)  # type: ignore[assignment]
        TerminalDriver.started = True
        if sys.__stderr__ is not None:
            with suppress(OSError):
                self._guard = guard_screen(sys.__stderr__.fileno())  # where Textual draws
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.app.terminal_writes.output = self.write

    def _listen(self) -> None:
        """Handles signals in the event loop, between two tasks.

        An exception from a signal handler would not restore the screen, and a handler that waits for a thread
        can deadlock with the code it interrupted.
        """
        loop = asyncio.get_running_loop()
        with suppress(RuntimeError, ValueError):  # not on the main thread
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
                    loop.add_signal_handler(number, partial(self.app.exit, return_code=128 + number))
            loop.add_signal_handler(signal.SIGTSTP, self.suspend)
            loop.add_signal_handler(signal.SIGCONT, self._continued)

    @property
    def has_shell(self) -> bool:
        """Whether a shell in this session could resume this program after a stop."""
        parent = os.getppid()
        try:
            return os.getsid(parent) == os.getsid(0)
        except OSError:
            return False

    def suspend(self, *, group: bool = False) -> None:
        """Restores the terminal, stops until SIGCONT, and takes the terminal again.

        ``group``: stop all processes of the job, including the collector, as Ctrl+Z does in a terminal.
        Otherwise the collector blocks when its pipe is full.
        """
        loop = asyncio.get_running_loop()
        self.suspend_application_mode()
        for number in (signal.SIGTSTP, signal.SIGCONT):
            loop.remove_signal_handler(number)
        # The default action; the kernel skips it for an orphaned process group, which no shell can resume.
        os.kill(0 if group else os.getpid(), signal.SIGTSTP)
        if group:
            os.kill(0, signal.SIGCONT)  # SIGCONT may have been sent to this process alone
        self._take_terminal()

    def _continued(self) -> None:
        """Handles a SIGCONT without a preceding SIGTSTP: after SIGSTOP, or when a terminal was closed."""
        if self._wake is not None:
            self.suspend_application_mode()  # two reading threads would each get half of the keys
            self._take_terminal()

    def _take_terminal(self) -> None:
        self.resume_application_mode()
        self.app.screen.refresh(layout=True)
        self.app.app_resume_signal.publish(self.app)

    def _in_foreground(self) -> bool:
        """Whether this program is in the terminal's foreground; True if unknown."""
        try:
            return os.tcgetpgrp(self.fileno) == os.getpgrp()
        except OSError:
            return True

    def write(self, data: str) -> None:
        """See :class:`LinuxDriver`. Over a first frame, output is held back until the next frame is complete."""
        if data == _ALTERNATE_SCREEN and TerminalDriver.has_alternate_screen:
            TerminalDriver.has_alternate_screen = False
            self._held_output = []
        elif self._held_output is not None:
            self._held_output.append(data)
        else:
            super().write(data)

    def write_beside(self, data: str) -> None:
        """Writes something that is not part of the screen, from any thread; nothing once the terminal is left."""
        with suppress(AssertionError):  # of LinuxDriver, which has no thread that writes before and after
            self.write(data)

    @property
    def holds_output(self) -> bool:
        """Whether output is held back until :meth:`release`."""
        return self._held_output is not None

    def release(self) -> None:
        """Writes the output held back, as one synchronized update."""
        held, self._held_output = self._held_output, None
        if held:
            super().write(f"{SYNC_START}{''.join(held)}{SYNC_END}")

    def stop_application_mode(self) -> None:
        self.app.terminal_writes.output = None
        self.release()
        super().stop_application_mode()
        guard, self._guard = self._guard, None
        if guard is not None:
            with suppress(OSError, subprocess.TimeoutExpired):
                guard.communicate(b"\n", timeout=_TIMEOUT_SECONDS)

    def disable_input(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            os.write(wake[1], b".")  # never read, so that every poll returns at once
        super().disable_input()
        for descriptor in wake or ():
            os.close(descriptor)

    def run_input_thread(self) -> None:
        """Reads keys and mouse events, and sleeps in between."""
        if XTermParser is None:
            super().run_input_thread()
            return
        assert self._wake is not None
        parser = XTermParser()
        decode = getincrementaldecoder("utf-8")().decode
        poll = select.poll()
        poll.register(self.fileno, select.POLLIN)
        poll.register(self._wake[0], select.POLLIN)
        polls_left = 0
        try:
            while not self.exit_event.is_set():
                ready = poll.poll(_POLL_MILLISECONDS if polls_left else None)
                polls_left = max(polls_left - 1, 0)
                if any(descriptor == self.fileno for descriptor, _ in ready):
                    try:
                        read = os.read(self.fileno, 4096)
                    except OSError:
                        read = b""
                    if not read:  # the terminal was closed, and SIGHUP may be ignored
                        self.app.call_later(self.app.exit, return_code=128 + signal.SIGHUP)
                        return
                    text = decode(read)
                    for event in parser.feed(text) if text else ():
                        self.process_message(event)
                    polls_left = 2 + int(ESCAPE_DELAY * 1000 / _POLL_MILLISECONDS)
                for event in parser.tick():
                    self.process_message(event)
        finally:
            with suppress(EOFError, ParseError):
                list(parser.feed(""))
