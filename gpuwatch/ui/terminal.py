"""Textual's driver for terminals, which sleeps while nobody types."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from codecs import getincrementaldecoder
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from textual._ansi_sequences import SYNC_END, SYNC_START
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

_LOOK_AGAIN = 50
"""Milliseconds between looks while it is open whether an Esc begins a sequence."""
_ALTERNATE_SCREEN = "\x1b[?1049h"


class _File:
    """A terminal to write to, which may be closed at any time: from then on what is written goes nowhere.

    A thread writes, and others wait where it does not: it must not end by an error.
    """

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """Writes, as far as somebody is there to read."""
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        """Flushes, as far as somebody is there to read."""
        with suppress(OSError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class TerminalDriver(LinuxDriver):
    """Waits for input without looking ten times a second; may begin on an alternate screen that is on already."""

    has_screen: ClassVar[bool] = False
    """The alternate screen is on, with a first picture: to enter it again would clear that."""
    took_screen: ClassVar[bool] = False
    """A driver has begun to work, and gives the screen back when it ends."""
    _held: list[str] | None = None
    _wake: tuple[int, int] | None = None
    """A pipe that ends the wait for input."""

    def start_application_mode(self) -> None:
        """See :class:`LinuxDriver`."""
        self._leave_by_signals()
        self._wake = os.pipe()
        if not isinstance(self._file, _File):
            self._file = _File(self._file)  # type: ignore[assignment]
        TerminalDriver.took_screen = True
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def _leave_by_signals(self) -> None:
        """From here on they leave as q does: an exception out of a signal handler would leave the screen as it is."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                with suppress(RuntimeError, ValueError):  # not on the main thread
                    loop.add_signal_handler(number, partial(self._app.exit, return_code=128 + number))

    def write(self, data: str) -> None:
        """See :class:`LinuxDriver`. Over a first picture nothing is written before there is another one."""
        if data == _ALTERNATE_SCREEN and TerminalDriver.has_screen:
            TerminalDriver.has_screen = False
            self._held = []
        elif self._held is not None:
            self._held.append(data)
        else:
            super().write(data)

    @property
    def holds(self) -> bool:
        """Whether what is written waits for :meth:`release`."""
        return self._held is not None

    def release(self) -> None:
        """Writes all that was held back, which a terminal that can shows as one."""
        held, self._held = self._held, None
        if held:
            super().write(f"{SYNC_START}{''.join(held)}{SYNC_END}")

    def resume_application_mode(self) -> None:
        """See :class:`LinuxDriver`. SIGCONT also comes where nobody was told of a stop before it.

        So it is after SIGSTOP, and when the terminal is closed; what still runs is ended first.
        """
        if self._wake is not None:
            self.suspend_application_mode()
        super().resume_application_mode()

    def stop_application_mode(self) -> None:
        """See :class:`LinuxDriver`."""
        self.release()
        super().stop_application_mode()

    def disable_input(self) -> None:
        """See :class:`LinuxDriver`."""
        wake, self._wake = self._wake, None
        if wake is not None:
            os.write(wake[1], b".")  # never read: until the end is known, the wait ends at once
        super().disable_input()
        for descriptor in wake or ():
            os.close(descriptor)

    def run_input_thread(self) -> None:
        """Reads keys and mouse events, and sleeps in between."""
        assert self._wake is not None
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")().decode
        waiting = select.poll()
        waiting.register(self.fileno, select.POLLIN)
        waiting.register(self._wake[0], select.POLLIN)
        try:
            while not self.exit_event.is_set():
                ready = waiting.poll(None if parser._timeout_time is None else _LOOK_AGAIN)
                if any(descriptor == self.fileno for descriptor, _ in ready):
                    try:
                        read = os.read(self.fileno, 4096)
                    except OSError:
                        read = b""
                    if not read:  # the terminal was closed, and SIGHUP may be ignored
                        self._app.call_later(self._app.exit, return_code=128 + signal.SIGHUP)
                        return
                    text = decode(read)
                    for event in parser.feed(text) if text else ():
                        self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)
        finally:
            with suppress(EOFError, ParseError):
                list(parser.feed(""))
