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
        """See :class:`LinuxDriver`. Not before the terminal is ours: it is not where the shell said bg."""
        while not self._in_front():
            os.kill(os.getpid(), signal.SIGSTOP)
        self._listen()
        self._wake = os.pipe()
        if not isinstance(self._file, _File):
            self._file = _File(self._file)  # type: ignore[assignment]
        TerminalDriver.took_screen = True
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def _listen(self) -> None:
        """From here on signals are answered between two tasks, where nothing is half done.

        An exception out of a signal handler would leave the screen as it is; a thread that such a handler waits for
        may wait for what it interrupted.
        """
        loop = asyncio.get_running_loop()
        with suppress(RuntimeError, ValueError):  # not on the main thread
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                    loop.add_signal_handler(number, partial(self._app.exit, return_code=128 + number))
            loop.add_signal_handler(signal.SIGTSTP, self.suspend)
            loop.add_signal_handler(signal.SIGCONT, self._continued)

    @property
    def has_shell(self) -> bool:
        """Whether somebody would notice that this program stands still, and could tell it to go on."""
        parent = os.getppid()
        try:
            return os.getsid(parent) == os.getsid(0)
        except OSError:
            return False

    def suspend(self, *, group: bool = False) -> None:
        """Gives the terminal back, stands still until SIGCONT comes, and takes the terminal again.

        ``group``: all processes of the job stand still, as they do when the terminal itself is asked by Ctrl+Z.
        The collector is one of them; where it is not, it waits as soon as its pipe is full.
        """
        loop = asyncio.get_running_loop()
        self.suspend_application_mode()
        for number in (signal.SIGTSTP, signal.SIGCONT):
            loop.remove_signal_handler(number)
        # With its default action, which the kernel leaves out where no shell is there to go on by.
        os.kill(0 if group else os.getpid(), signal.SIGTSTP)
        if group:
            os.kill(0, signal.SIGCONT)  # whoever said so may have said it to this process alone
        self._take_again()

    def _continued(self) -> None:
        """SIGCONT also comes where nobody was told of a stop before it: after SIGSTOP, and of a closed terminal."""
        if self._wake is not None:
            self.suspend_application_mode()  # of two threads that read each would get half of the keys
            self._take_again()

    def _take_again(self) -> None:
        """Draws everything anew, whatever others have made of the terminal meanwhile."""
        self.resume_application_mode()
        self._app.screen.refresh(layout=True)
        self._app.app_resume_signal.publish(self._app)

    def _in_front(self) -> bool:
        """Whether the terminal listens to this program; also where nobody can say."""
        try:
            return os.tcgetpgrp(self.fileno) == os.getpgrp()
        except OSError:
            return True

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
