"""``gpuwatch --prometheus URL`` and ``gpuwatch --hosts a,b,c``: the dashboard over many hosts."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from gpuwatch.cli.output import print_line
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.terminal_support import has_few_colors, needs_ascii

if TYPE_CHECKING:
    from gpuwatch.cli.hosts_options import ChosenHosts
    from gpuwatch.machine.collector.snapshot_feed import Feed
    from gpuwatch.ui.settings.settings_file import Loaded
    from gpuwatch.ui.tables.host_filter import FleetFilter

INTERVAL_SECONDS = 5.0
"""Seconds between two reads of all hosts, if no other interval is asked for."""
_THREAD_SWITCH_SECONDS = 0.001
"""Seconds for which one thread computes while another one waits; Python's default is five times that."""


def host_list_order(
    filter_: str | None, sort: str | None, *, descending: bool | None
) -> tuple[FleetFilter | None, str, bool]:
    """Which hosts are shown, by which column they are sorted, and whether against its usual direction.

    From ``--filter``, ``--sort`` and ``--descending``; :class:`UsageError` if they make no sense.
    """
    from gpuwatch.ui.tables.filter_language import FilterError
    from gpuwatch.ui.tables.host_columns import BY_ID
    from gpuwatch.ui.tables.host_filter import EXAMPLES, parse

    try:
        wanted = parse(filter_ or "")
    except FilterError as error:
        raise UsageError(f"--filter is invalid: {error}", hint=f"hosts are filtered by {EXAMPLES}") from None
    column = BY_ID.get(sort or "host")
    if column is None:
        raise UsageError(f"--sort has the unknown column {sort!r}", hint=f"hosts have {', '.join(BY_ID)}")
    return wanted, column.id, descending is not None and descending != column.descending


def run_fleet(
    settings: Loaded, interval: float | None, chosen: ChosenHosts, order: tuple[FleetFilter | None, str, bool]
) -> int:
    """Shows the list of hosts until the user leaves; the exit code of the program."""
    from gpuwatch.cli.dashboard import need_terminal

    need_terminal(
        "gpuwatch pick --prometheus or --hosts names a host with free GPUs", "set TERM to that of your terminal"
    )
    from gpuwatch.fleet.host_poller import FleetWatch
    from gpuwatch.ui.app import run as run_app
    from gpuwatch.ui.fleet_app import FleetApp

    seconds = interval or INTERVAL_SECONDS
    source = chosen.source(seconds)

    def feed(name: str) -> Feed:
        if chosen.server is not None:
            from gpuwatch.fleet.prometheus_feed import PrometheusFeed
            from gpuwatch.fleet.prometheus_source import PrometheusSource

            assert isinstance(source, PrometheusSource)
            return PrometheusFeed(chosen.server, source, name, seconds)
        from gpuwatch.fleet.ssh_source import SshHostFeed

        return SshHostFeed(name, settings.preferences.interval, command=chosen.command, options=chosen.options)

    app = FleetApp(
        FleetWatch(source, seconds),
        feed,
        settings=settings,
        ascii_only=bool(needs_ascii(os.environ, sys.stdout.encoding)),
        few_colors=has_few_colors(os.environ),
        command=chosen.arguments,
    )
    wanted, column, reverse = order
    app.fleet_screen.begin_with(wanted, column, reverse=reverse)
    # A key must not wait for the thread that decodes the answers of a hundred hosts.
    sys.setswitchinterval(_THREAD_SWITCH_SECONDS)
    try:
        return run_app(app)
    finally:
        for line in settings.lines:
            print_line(f"gpuwatch: {line}")
