"""Runs the dashboard: of this machine, or the list of many hosts (``--prometheus``, ``--hosts``).

The options of ``gpuwatch`` without a command are in :mod:`gpuwatch.cli.main`, which calls this.
"""

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
from gpuwatch.core.formatting.terminal_support import has_few_colors, why_cannot_draw, why_only_ascii
from gpuwatch.machine.collector.live_feed import LiveFeed

if TYPE_CHECKING:
    from gpuwatch.cli.hosts_options import ChosenHosts
    from gpuwatch.session.alerts import Alerts
    from gpuwatch.ui.settings.settings_file import LoadedSettings
    from gpuwatch.ui.tables.host_filter import HostFilter

_FLEET_INTERVAL_SECONDS = 5.0
"""Seconds between two reads of all hosts, if no other interval is asked for."""
_THREAD_SWITCH_SECONDS = 0.001
"""Seconds for which one thread computes while another one waits; Python's default is five times that."""


def need_terminal(pipe_hint: str, text_hint: str) -> None:
    """:class:`UsageError` where nothing can be drawn; the hints say what works in a pipe, and as text."""
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):  # None: it is closed
        raise UsageError("the dashboard needs a terminal", hint=pipe_hint)
    unable = why_cannot_draw(os.environ)
    if unable:
        raise UsageError(unable, hint=text_hint)


def run_dashboard(ctx: click.Context, settings: LoadedSettings, alerts: Alerts | None = None) -> int:
    """Shows the dashboard until the user leaves; the exit code of the program."""
    need_terminal("in a pipe or a batch job, use gpuwatch snapshot", "gpuwatch snapshot prints the same as text")
    enter_simulation(ctx)
    # The collector opens the driver while this process imports the screens. Imported objects stay: scanning them for
    # garbage costs a tenth of the start, and again at every later collection.
    gc.disable()
    early_start = early_collector.take_early_start()
    running_collector = early_start.collector if early_start is not None else None
    preferences = settings.preferences
    live = LiveFeed(
        preferences.interval, gpm=preferences.gpm, first=running_collector, share=not preferences.own_collector
    )
    try:
        if early_start is None:
            early_start = early_collector.EarlyStart(live.launch())
            early_start.paint(preferences)
        live.read_ahead(early_start.frames)
        early_start.frames = []
        live.start()  # the first frame already has a sample
        from gpuwatch.session.session import Session
        from gpuwatch.ui.app import GpuwatchApp
        from gpuwatch.ui.app import run as run_app

        gc.freeze()
        gc.enable()
        if early_start.picture is not None:
            early_start.picture.hand_over()
        exit_signals.exit_if_signaled()
        ascii_only = bool(why_only_ascii(os.environ, sys.stdout.encoding))
        few_colors = has_few_colors(os.environ)
        session = Session(live, own_machine=True, alerts=alerts)
        app = GpuwatchApp(session, settings=settings, ascii_only=ascii_only, few_colors=few_colors)
        code = run_app(app)
    finally:
        live.stop()
        if early_start is not None:
            early_start.leave()
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


def host_list_filter_and_order(
    filter_: str | None, sort: str | None, *, descending: bool | None
) -> tuple[HostFilter | None, str, bool]:
    """Which hosts are shown, by which column they are sorted, and whether against its usual direction.

    From ``--filter``, ``--sort`` and ``--descending``; :class:`UsageError` if they make no sense.
    """
    from gpuwatch.ui.tables.filter_language import FilterError
    from gpuwatch.ui.tables.host_columns import COLUMN_BY_ID
    from gpuwatch.ui.tables.host_filter import EXAMPLES, parse_host_filter

    try:
        wanted = parse_host_filter(filter_ or "")
    except FilterError as error:
        raise UsageError(f"--filter is invalid: {error}", hint=f"hosts are filtered by {EXAMPLES}") from None
    column = COLUMN_BY_ID.get(sort or "host")
    if column is None:
        raise UsageError(f"--sort has the unknown column {sort!r}", hint=f"hosts have {', '.join(COLUMN_BY_ID)}")
    return wanted, column.id, descending is not None and descending != column.descending


def run_host_list(
    settings: LoadedSettings,
    interval: float | None,
    hosts: ChosenHosts,
    filter_and_order: tuple[HostFilter | None, str, bool],
) -> int:
    """Shows the list of hosts until the user leaves; the exit code of the program."""
    need_terminal(
        "gpuwatch pick --prometheus or --hosts names a host with free GPUs", "set TERM to that of your terminal"
    )
    from gpuwatch.fleet.fleet_source import FleetPoller
    from gpuwatch.ui.app import run as run_app
    from gpuwatch.ui.fleet_app import FleetApp

    seconds = interval or _FLEET_INTERVAL_SECONDS
    source = hosts.source(seconds)

    app = FleetApp(
        FleetPoller(source, seconds),
        lambda name: source.feed(name, settings.preferences.interval if hosts.server is None else seconds),
        settings=settings,
        ascii_only=bool(why_only_ascii(os.environ, sys.stdout.encoding)),
        few_colors=has_few_colors(os.environ),
        host_arguments=hosts.arguments,
    )
    wanted, column, reverse = filter_and_order
    app.fleet_screen.begin_with(wanted, column, reverse=reverse)
    # A key must not wait for the thread that decodes the answers of a hundred hosts.
    sys.setswitchinterval(_THREAD_SWITCH_SECONDS)
    try:
        return run_app(app)
    finally:
        for line in settings.lines:
            print_line(f"gpuwatch: {line}")
