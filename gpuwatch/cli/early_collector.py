"""The early start of the dashboard, and of a snapshot: the collector before anything else is imported.

Importing Textual takes longer than the driver needs to answer. So the program first forks its collector; while that
opens the driver, this process imports what a picture needs. It paints the devices as soon as they are known and then
imports Textual in parts; between two parts it checks whether the processes are known, and paints them too.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from gpuwatch.cli import exit_signals

if TYPE_CHECKING:
    from subprocess import Popen

    from gpuwatch.machine.collector.forked_collector import ForkedProcess
    from gpuwatch.ui.settings.preferences import Preferences
    from gpuwatch.ui.startup.first_frame import FirstFrame

_FIRST_PICTURE_SECONDS = 0.1
"""Seconds to wait for the first picture without doing anything else."""
_SNAPSHOT_OPTIONS = frozenset({"--csv", "--json", "--redact", "--topology"})
"""Options of a snapshot that do not change what its collector reads, nor where."""
_SLOW_MODULES = (
    "gpuwatch.ui.panes.process_table_lines",
    "gpuwatch.core.masking.mask_secrets",
    "click",
    "asyncio",
    "rich.console",
    "textual.geometry",
    "textual.css.stylesheet",
    "textual.screen",
    "textual.app",
    "gpuwatch.ui.app",
)
"""Modules to import one by one, checking for frames from the collector in between."""


class EarlyStart:
    """The collector's process that was started early, and the first picture if one was drawn."""

    def __init__(self, collector: ForkedProcess | Popen[bytes]) -> None:
        self.collector = collector
        self.picture: FirstFrame | None = None
        self.frames: list[tuple[bytes, bytes]] = []
        """Frames read from the collector so far: the next reader starts with these."""

    def paint(self, preferences: Preferences, extra_modules: Sequence[str] = ()) -> None:
        """Paints the devices, then the processes, as soon as they are known; imports ``extra_modules`` meanwhile."""
        from gpuwatch.ui.startup.first_frame import FirstFrame

        picture = FirstFrame(preferences)
        if not picture.possible or self.frames:
            return
        self.picture = picture
        until = time.monotonic() + _FIRST_PICTURE_SECONDS
        for module in (*_SLOW_MODULES, *extra_modules):
            # Until the devices are known, waiting for them briefly is better than importing.
            if self._paint_next(0.0 if self.frames else max(until - time.monotonic(), 0.0)):
                return
            importlib.import_module(module)
        self._paint_next(0.0)

    def _paint_next(self, seconds: float) -> bool:
        """Paints the next frame, if it arrives within this time; whether nothing more is to be painted."""
        stream, picture = self.collector.stdout, self.picture
        assert stream is not None
        assert picture is not None
        if not stream_ready(stream, seconds):
            return False
        from gpuwatch.machine.collector.protocol import PREVIEW
        from gpuwatch.machine.history.sample_frames import KEY, FrameDecoder, read_frame

        frame = read_frame(stream)
        if frame is None:
            return True  # it has exited: the next reader handles that
        self.frames.append(frame)
        kind, body = frame
        if kind == PREVIEW:
            return not picture.paint(FrameDecoder().receive(KEY, body)) or not picture.can_paint_processes
        if kind == KEY:  # the first frame, if it is a recorder's sample
            picture.paint(FrameDecoder().receive(KEY, body), with_processes=picture.can_paint_processes)
        return True

    def leave(self) -> None:
        """Ends the collector and restores the terminal."""
        if self.picture is not None:
            import termios

            with suppress(OSError, termios.error):  # the terminal may be closed
                self.picture.restore_terminal()
        if self.collector.stdin is not None:
            # At the end of its input the collector exits.
            with suppress(OSError):
                self.collector.stdin.close()


def stream_ready(stream: IO[bytes], seconds: float) -> bool:
    """Whether data or the end of file can be read within this time."""
    # Data that is already buffered does not make the descriptor ready; peek returns it without reading.
    if select.select([stream], [], [], 0)[0]:
        return True
    os.set_blocking(stream.fileno(), False)
    try:
        if stream.peek(1):  # type: ignore[attr-defined]
            return True
    finally:
        os.set_blocking(stream.fileno(), True)
    return bool(select.select([stream], [], [], seconds)[0])


_early_start: EarlyStart | None = None


def start_early(arguments: Sequence[str], extra_modules: Sequence[str]) -> None:
    """Starts the collector if the command line certainly opens the dashboard on a terminal, or takes a snapshot.

    ``extra_modules``: modules that the caller will need; named here, they would close a circle of imports. All other
    command lines, and all errors, are left to the command line's parser.
    """
    global _early_start
    if arguments[:1] == ["snapshot"] and _SNAPSHOT_OPTIONS.issuperset(arguments[1:]):
        with suppress(OSError):  # a closed stdin or stdout, whose number a pipe would get
            for number in (0, 1, 2):
                os.fstat(number)
            from gpuwatch.machine.collector.forked_collector import SAMPLE_GAP_SECONDS

            _early_start = _fork_collector(SAMPLE_GAP_SECONDS, on_demand=True)
        return
    if any(argument != "--read-only" for argument in arguments) or not sys.platform.startswith("linux"):
        return
    if os.environ.get("TERM") in ("dumb", "unknown"):  # see gpuwatch.core.formatting.terminal_support.why_cannot_draw
        return
    if not all(map(os.isatty, (0, 1, 2))) or any(name.endswith("_COMPLETE") for name in os.environ):
        return
    gc.disable()
    exit_signals.undo_early_start = undo_early_start
    from gpuwatch.machine.collector.protocol import DEFAULT_INTERVAL_SECONDS

    _early_start = _fork_collector(DEFAULT_INTERVAL_SECONDS, share=True)
    if _early_start is None:
        return
    from gpuwatch.ui.settings.settings_file import default_path, load_settings

    loaded = load_settings(default_path())
    if not loaded.notice:
        from dataclasses import replace

        chosen = loaded.preferences
        _early_start.paint(replace(chosen, read_only=chosen.read_only or "--read-only" in arguments), extra_modules)


def _fork_collector(interval: float, *, share: bool = False, on_demand: bool = False) -> EarlyStart | None:
    # Import what both processes need before there are two.
    import gpuwatch.machine.collector.protocol  # noqa: F401
    from gpuwatch.machine.collector.forked_collector import fork_collector

    try:
        return EarlyStart(fork_collector(interval, share=share, on_demand=on_demand))
    except OSError:
        return None  # the collector is spawned later instead, which reports the error


def take_early_start() -> EarlyStart | None:
    """Hands over what :func:`start_early` started: the caller has to end it. None if nothing was started."""
    global _early_start
    exit_signals.undo_early_start = None
    start, _early_start = _early_start, None
    return start


def undo_early_start() -> None:
    """Ends the early collector and restores the terminal, unless somebody took them over."""
    start = take_early_start()
    if start is not None:
        start.leave()
