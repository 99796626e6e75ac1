"""``gpuwatch`` alone: the dashboard."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import early_collector, exit_signals
from gpuwatch.cli.output import print_line
from gpuwatch.cli.sim_options import enter_simulation
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.terminal_support import cannot_draw, has_few_colors, needs_ascii
from gpuwatch.machine.collector.live_feed import LiveFeed

if TYPE_CHECKING:
    from gpuwatch.session.alerts.alerts import Alerts
    from gpuwatch.ui.settings.settings_file import Loaded


def need_terminal(pipe_hint: str, text_hint: str) -> None:
    """:class:`UsageError` where nothing can be drawn; the hints say what works in a pipe, and as text."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the dashboard needs a terminal", hint=pipe_hint)
    unable = cannot_draw(os.environ)
    if unable:
        raise UsageError(unable, hint=text_hint)


def run_dashboard(ctx: click.Context, settings: Loaded, alerts: Alerts | None = None) -> int:
    """Shows the dashboard until the user leaves; the exit code of the program."""
    need_terminal("in a pipe or a batch job, use gpuwatch snapshot", "gpuwatch snapshot prints the same as text")
    enter_simulation(ctx)
    # The collector opens the driver while this process imports the screens. Imported objects stay: scanning them for
    # garbage costs a tenth of the start, and again at every later collection.
    gc.disable()
    begun = early_collector.take_started()
    first = begun.collector if begun is not None else None
    chosen = settings.preferences
    live = LiveFeed(chosen.interval, gpm=chosen.gpm, first=first, share=not chosen.own_collector)
    try:
        if begun is None:
            begun = early_collector.Start(live.launch())
            begun.paint(chosen)
        live.read_ahead(begun.frames)
        begun.frames = []
        live.start()  # the first frame already has a sample
        from gpuwatch.session.session import Session
        from gpuwatch.ui.app import GpuwatchApp
        from gpuwatch.ui.app import run as run_app

        gc.freeze()
        gc.enable()
        if begun.picture is not None:
            begun.picture.hand_over()
        exit_signals.exit_if_signalled()
        ascii_only = bool(needs_ascii(os.environ, sys.stdout.encoding))
        few_colors = has_few_colors(os.environ)
        session = Session(live, own_machine=True, alerts=alerts)
        app = GpuwatchApp(session, settings=settings, ascii_only=ascii_only, few_colors=few_colors)
        code = run_app(app)
    finally:
        live.stop()
        if begun is not None:
            begun.leave()
        for line in settings.lines:
            # All of it where it stays, now that the screen is gone.
            print_line(f"gpuwatch: {line}")
    if app.next_command:
        _exec_gpuwatch(app.next_command)
    return code


def _exec_gpuwatch(arguments: Sequence[str]) -> None:
    """Becomes another gpuwatch: a command, or a dashboard with the same options and these before them."""
    options = sys.argv[1:] if arguments[0].startswith("-") else []
    if not options:
        print_line(f"$ {' '.join(['gpuwatch', *arguments])}")
    # Not from the current folder, whose files could have the names of modules.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "gpuwatch", *arguments, *options])
