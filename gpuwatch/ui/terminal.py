"""Textual's driver for terminals, which sleeps while nobody types."""

from __future__ import annotations

import os
import select
from codecs import getincrementaldecoder
from contextlib import suppress
from typing import ClassVar

from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

_LOOK_AGAIN = 50
"""Milliseconds between looks while it is open whether an Esc begins a sequence."""
_ALTERNATE_SCREEN = "\x1b[?1049h"


class TerminalDriver(LinuxDriver):
    """Waits for input without looking ten times a second; may begin on an alternate screen that is on already."""

    has_screen: ClassVar[bool] = False
    """The alternate screen is on, with a first picture: to enter it again would clear that."""
    took_screen: ClassVar[bool] = False
    """A driver has begun to work, and gives the screen back when it ends."""
    _wake: tuple[int, int] | None = None
    """A pipe that ends the wait for input."""

    def start_application_mode(self) -> None:
        """See :class:`LinuxDriver`."""
        self._wake = os.pipe()
        TerminalDriver.took_screen = True
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def write(self, data: str) -> None:
        """See :class:`LinuxDriver`."""
        if data == _ALTERNATE_SCREEN and TerminalDriver.has_screen:
            TerminalDriver.has_screen = False
        else:
            super().write(data)

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
                    text = decode(os.read(self.fileno, 4096))
                    for event in parser.feed(text) if text else ():
                        self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)
        finally:
            with suppress(EOFError, ParseError):
                list(parser.feed(""))
