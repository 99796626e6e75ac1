"""Shows on stderr what a command is doing: on a terminal in a line that is removed, elsewhere only for long work."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gpuwatch.cli.output import print_line

SENDS_PROGRESS = os.environ.pop("GPUWATCH_PROGRESS_LINES", None) is not None
"""Whether ``gpuwatch node`` (gpuwatch/fleet/cluster/node_agent.py) started this, and sends progress to another machine.
The variable is removed, so that the programs that this process starts do not inherit it."""


def progress_wanted() -> bool:
    """Whether stderr is a terminal, where long work shows its progress, or it is sent to one."""
    return sys.stderr.isatty() or SENDS_PROGRESS


def progress(doing: str) -> None:
    """Says what is being done: on a terminal in one line that the next one replaces and an empty one removes; elsewhere
    in one line, once, if it takes over a second."""
    global _delayed_line, _line_shown
    if SENDS_PROGRESS:
        sys.stderr.write(f"\x1f{doing}\n" if doing else "")
        sys.stderr.flush()
    elif progress_wanted():
        if doing or _line_shown:
            sys.stderr.write("\r\x1b[K" + (f"{doing} …" if doing else ""))
            sys.stderr.flush()
        _line_shown = bool(doing)
    elif os.environ.get("GPUWATCH_PROGRESS") == "terminal":
        return
    elif not doing:
        if _delayed_line is not None:
            _delayed_line.cancel()
        _delayed_line = None
    elif _delayed_line is None:
        _delayed_line = _DelayedLine(doing)
        _delayed_line.start()
    else:
        _delayed_line.doing = doing


class _DelayedLine(threading.Timer):
    """One line for work that is not over after a second."""

    def __init__(self, doing: str) -> None:
        super().__init__(_SILENT_SECONDS, self._say)
        self.doing, self.daemon = doing, True

    def _say(self) -> None:
        with suppress(OSError, ValueError):  # nobody reads stderr
            print_line(f"gpuwatch: {self.doing} …")


_SILENT_SECONDS = 1.0
_delayed_line: _DelayedLine | None = None
_line_shown = False
"""Whether a line of progress is on the terminal."""


@contextmanager
def compile_notice() -> Iterator[None]:
    """Says when the simulated libraries are compiled, and how long that took; in a pipe too, as it takes a while."""
    from gpuwatch.sim import library_cache

    began: list[float] = []

    def print_compiling() -> None:
        if not began:
            print_over_progress("compiling the simulated GPUs; this is done once and can take a minute")
        began.append(time.monotonic())

    with library_cache.announced_builds(print_compiling):
        yield
    if began:
        print_over_progress(f"compiled in {time.monotonic() - began[0]:.0f} s")


def print_over_progress(text: str) -> None:
    """Prints a line to stderr, in place of the progress."""
    progress("")
    print_line(f"gpuwatch: {text}")
