"""The start of the dashboard: a collector that works, and a picture that is there, before Textual is imported.

Textual takes longer to import than the driver takes to answer. So the first thing that the program does
is to fork its collector; while that one opens the driver, this process imports what a picture needs. It
paints the devices as soon as they are known, and goes on with Textual's parts; between two of them it looks
whether the processes are known too, and puts them into the picture.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from subprocess import Popen

    from gpuwatch.monitor.forked import Forked
    from gpuwatch.ui.first import Picture
    from gpuwatch.ui.preferences import Preferences

_PATIENCE = 0.1
"""Seconds for which a picture is worth waiting, doing nothing else."""
INTERVAL = 1.0
"""Seconds between the samples of a collector that was begun before anybody has said how many they should be."""
_HEAVY = (
    "gpuwatch.ui.widgets.process_lines",
    "gpuwatch.formatting.secrets",
    "click",
    "asyncio",
    "rich.console",
    "textual.geometry",
    "textual.css.stylesheet",
    "textual.screen",
    "textual.app",
    "gpuwatch.cli.main",
    "gpuwatch.ui.app",
)
"""Modules to import one by one, looking between them whether the collector has said something."""


def end_by_signals() -> None:
    """SIGTERM, and SIGHUP of a terminal that is closed, end things as Ctrl+C does.

    What was started is ended, the terminal restored. nohup keeps its SIGHUP ignored.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


ended: int | None = None
"""The exit code of a signal that came. Python may lose what its handler raised, above all amid imports.

In the callback of a weak reference it is dropped, where a class is made it becomes another error.
"""


def _end(number: int, frame: FrameType | None) -> None:
    global ended
    ended = 128 + number
    raise SystemExit(ended)


def go_on() -> None:
    """Ends the program where a signal should have done so."""
    if ended is not None:
        raise SystemExit(ended)


class Start:
    """What has begun: the collector's process, and the picture if there is one."""

    def __init__(self, collector: Forked | Popen[bytes]) -> None:
        self.collector = collector
        self.picture: Picture | None = None
        self.frames: list[tuple[bytes, bytes]] = []
        """What the collector has said so far: whoever reads on has to begin with these."""

    def paint(self, chosen: Preferences) -> None:
        """Paints the devices, then the processes, as soon as they are known, importing Textual meanwhile."""
        from gpuwatch.ui.first import Picture

        picture = Picture(chosen)
        if not picture.possible or self.frames:
            return
        self.picture = picture
        until = time.monotonic() + _PATIENCE
        for module in _HEAVY:
            # Before the devices are there, a moment is better spent with waiting for them.
            if self._painted(0.0 if self.frames else max(until - time.monotonic(), 0.0)):
                return
            importlib.import_module(module)
        self._painted(0.0)

    def _painted(self, seconds: float) -> bool:
        """Whether there is nothing to wait for any more: all is painted, or it is not to be."""
        stream, picture = self.collector.stdout, self.picture
        assert stream is not None
        assert picture is not None
        if not stream_ready(stream, seconds):
            return False
        from gpuwatch.monitor.wire import HEAD_BYTES, PREVIEW, WHOLE, Receiver, head

        start = stream.read(HEAD_BYTES)
        length, kind = head(start) if len(start) == HEAD_BYTES else (0, b"")
        body = stream.read(length)
        if not kind or len(body) < length:
            return True  # it has ended: who reads on finds out
        self.frames.append((kind, body))
        if kind == PREVIEW:
            return not picture.paint(Receiver().receive(kind, body)) or not picture.lists
        if kind == WHOLE and picture.painted:
            picture.paint(Receiver().receive(kind, body), whole=True)
        return True

    def leave(self) -> None:
        """Ends the collector where nobody else has taken it, and gives the terminal back."""
        if self.picture is not None:
            import termios

            with suppress(OSError, termios.error):  # the terminal may be closed
                self.picture.leave()
        if self.collector.stdin is not None:
            # Its commands are at an end then, and it ends by itself.
            with suppress(OSError):
                self.collector.stdin.close()


def stream_ready(stream: IO[bytes], seconds: float) -> bool:
    """Whether something can be read within so many seconds, the end included."""
    # What a buffer holds already no longer makes the descriptor ready. A peek reads nothing while it holds some.
    if select.select([stream], [], [], 0)[0]:
        return True
    os.set_blocking(stream.fileno(), False)
    try:
        if stream.peek(1):  # type: ignore[attr-defined]
            return True
    finally:
        os.set_blocking(stream.fileno(), True)
    return bool(select.select([stream], [], [], seconds)[0])


_begun: Start | None = None


def begin(arguments: Sequence[str]) -> None:
    """Starts the collector for a command line that surely means the dashboard, on a terminal.

    All else is left to the command line's own parser, and so is everything that could go wrong.
    """
    global _begun
    if any(argument != "--read-only" for argument in arguments) or not sys.platform.startswith("linux"):
        return
    if os.environ.get("TERM") in ("dumb", "unknown"):  # see gpuwatch.formatting.terminal.cannot_draw
        return
    if not all(map(os.isatty, (0, 1, 2))) or any(name.endswith("_COMPLETE") for name in os.environ):
        return
    gc.disable()
    _begun = _fork()
    if _begun is None:
        return
    from gpuwatch.ui.preferences import default_path, load

    loaded = load(default_path())
    if not loaded.notice:
        from dataclasses import replace

        chosen = loaded.preferences
        _begun.paint(replace(chosen, read_only=chosen.read_only or "--read-only" in arguments))


def _fork() -> Start | None:
    # What both processes need is imported once, before there are two.
    import gpuwatch.monitor.wire  # noqa: F401
    from gpuwatch.monitor.forked import fork

    try:
        return Start(fork(INTERVAL))
    except OSError:
        return None  # the collector is then spawned, which says why it cannot be


def take() -> Start | None:
    """What :func:`begin` began, which from now on is the caller's to end; None where it began nothing."""
    global _begun
    begun, _begun = _begun, None
    return begun


def abandon() -> None:
    """Something else than the dashboard is about to happen: what was begun is undone."""
    begun = take()
    if begun is not None:
        begun.leave()
