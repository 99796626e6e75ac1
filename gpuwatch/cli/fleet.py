"""``gpuwatch --prometheus URL`` and ``gpuwatch --hosts a,b,c``: the dashboard over many hosts."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuwatch.cli.completion import files
from gpuwatch.cli.output import say
from gpuwatch.errors import UsageError
from gpuwatch.formatting.terminal import has_few_colors, needs_ascii

if TYPE_CHECKING:
    from gpuwatch.fleet.prometheus_api import Prometheus
    from gpuwatch.ui.settings.settings_file import Loaded

F = TypeVar("F", bound=Callable[..., Any])

INTERVAL = 5.0
"""Seconds between two reads of all hosts, if not asked for otherwise."""
_HEADER = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)")
_OPTIONS = (
    click.option(
        "--prometheus",
        metavar="URL",
        envvar="GPUWATCH_PROMETHEUS",
        show_envvar=True,
        help="Show the hosts that a Prometheus server has GPU metrics of: http://[user:password@]host:9090.",
    ),
    click.option(
        "--prometheus-header",
        "prometheus_headers",
        metavar="'NAME: VALUE'",
        multiple=True,
        help="Send this header with each query, for example 'X-Scope-OrgID: lab'.",
    ),
    click.option(
        "--prometheus-token-file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        shell_complete=files,
        help="Send the bearer token in FILE.",
    ),
    click.option(
        "--prometheus-ca",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        shell_complete=files,
        help="Trust the certificates in FILE, not those of the system.",
    ),
)


def fleet_options(command: F) -> F:
    """Adds ``--prometheus`` and what belongs to it."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def server(
    url: str, headers: Sequence[str] = (), token_file: Path | None = None, ca_file: Path | None = None
) -> Prometheus:
    """The server that the options name."""
    from gpuwatch.fleet.prometheus_api import Prometheus

    named = {}
    for header in headers:
        found = _HEADER.fullmatch(header)
        if found is None:
            raise UsageError("--prometheus-header needs 'NAME: VALUE'", hint="for example 'X-Scope-OrgID: lab'")
        named[found[1]] = found[2]
    if ca_file is not None and not ca_file.is_file():
        raise UsageError("--prometheus-ca: there is no such file")
    return Prometheus(url, headers=named, token_file=token_file, ca_file=ca_file)


def run(settings: Loaded, interval: float | None, asked: Prometheus) -> int:
    """Shows the list of hosts until the user leaves; the exit code of the program."""
    from gpuwatch.cli.dashboard import need_terminal

    need_terminal("gpuwatch pick --prometheus URL names a host with free GPUs", "set TERM to that of your terminal")
    from gpuwatch.fleet.prometheus_feed import PrometheusFeed
    from gpuwatch.fleet.prometheus_source import PrometheusSource
    from gpuwatch.fleet.watch import FleetWatch
    from gpuwatch.ui.fleet_app import FleetApp, run_fleet

    source = PrometheusSource(asked)
    watch = FleetWatch(source, interval or INTERVAL)
    app = FleetApp(
        watch,
        lambda name: PrometheusFeed(asked, source, name, interval or INTERVAL),
        settings=settings,
        ascii_only=bool(needs_ascii(os.environ, sys.stdout.encoding)),
        few_colors=has_few_colors(os.environ),
        command=lambda host: ["--prometheus", asked.name],
    )
    try:
        return run_fleet(app)
    finally:
        for line in settings.lines:
            say(f"gpuwatch: {line}")
