"""The signals that end a command: SIGTERM and SIGHUP, handled like Ctrl+C."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType


def handle_exit_signals(handler: Callable[[int, FrameType | None], None] | None = None, *more: int) -> None:
    """Handle SIGTERM, SIGHUP (closed terminal) and ``more`` with ``handler``, by default like Ctrl+C.

    Child processes are ended and the terminal is restored. An ignored SIGHUP (nohup) stays ignored.
    """
    for number in (signal.SIGTERM, signal.SIGHUP, *more):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler or _exit)


exit_code: int | None = None
"""The exit code for a received signal. Python may lose the exception that its handler raised, mostly during imports: in
the callback of a weak reference it is dropped, and during the creation of a class it becomes another error."""
undo_early_start: Callable[[], None] | None = None
"""Set while :mod:`gpuwatch.cli.early_collector` imports modules. An exception inside the import of a C module can crash
Python as it exits, so a signal then ends the process without unwinding."""


def _exit(number: int, frame: FrameType | None) -> None:
    global exit_code
    exit_code = 128 + number
    if undo_early_start is not None:
        undo_early_start()  # the collector exits at the end of its input
        os._exit(exit_code)
    raise SystemExit(exit_code)


def exit_if_signaled() -> None:
    """Exits if a signal was received whose exception was lost."""
    if exit_code is not None:
        raise SystemExit(exit_code)
