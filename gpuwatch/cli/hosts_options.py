"""The options that name many hosts, ``--prometheus`` and ``--hosts``, and the hosts that they choose."""

from __future__ import annotations

import inspect
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.shared_options import option_set
from gpuwatch.core.errors import GpuwatchError, UsageError

if TYPE_CHECKING:
    from gpuwatch.fleet.fleet_source import FleetSource
    from gpuwatch.fleet.prometheus_api import Prometheus

_HEADER = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)")
hosts_options = option_set(
    click.option(
        "--prometheus",
        metavar="URL",
        help="Use all hosts with GPU metrics on this Prometheus server: http://[user@]host:9090. The address may "
        "contain a password, but it is safer in GPUWATCH_PROMETHEUS_PASSWORD.",
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
        help="Send the bearer token in FILE.",
    ),
    click.option(
        "--prometheus-ca",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Trust the certificates in FILE instead of the system's.",
    ),
    click.option(
        "--hosts",
        metavar="HOST,...",
        help="Use these hosts, over ssh; only gpuwatch must be installed there: a,b,user@c:2222,n[01-16].",
    ),
    click.option(
        "--remote-command",
        metavar="COMMAND",
        help="Run gpuwatch on the hosts with this command, for example 'uvx gpuwatch-tui' (default: gpuwatch).",
    ),
    click.option("--ssh-options", metavar="OPTIONS", help="Pass these options to ssh, for example '-J gateway'."),
)


@dataclass(frozen=True, slots=True)
class ChosenHosts:
    """The hosts that the options name: those of a Prometheus server, or of a list."""

    server: Prometheus | None = None
    hosts: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    """How gpuwatch is called on the hosts."""
    options: tuple[str, ...] = ()
    """Further arguments of ssh."""
    arguments: tuple[str, ...] = ()
    """The command-line options that named the hosts, without secrets."""

    def source(self, interval: float) -> FleetSource:
        """The source of these hosts, not started yet; over ssh each sends a sample every ``interval`` seconds."""
        if self.server is not None:
            from gpuwatch.fleet.prometheus_source import PrometheusSource

            return PrometheusSource(self.server)
        from gpuwatch.fleet.ssh_source import SshSource

        return SshSource(self.hosts, interval, command=self.command, options=self.options)


def chosen_hosts(
    prometheus: str | None,
    prometheus_headers: Sequence[str],
    prometheus_token_file: Path | None,
    prometheus_ca: Path | None,
    hosts: str | None,
    remote_command: str | None,
    ssh_options: str | None,
) -> ChosenHosts | None:
    """Which hosts the options name; None if they name none."""
    if hosts is not None and prometheus is not None:
        raise UsageError("--prometheus and --hosts cannot be combined")
    if (prometheus_headers or prometheus_token_file or prometheus_ca) and prometheus is None:
        raise UsageError("--prometheus-header, -token-file and -ca need --prometheus")
    over_ssh = {"--remote-command": remote_command, "--ssh-options": ssh_options}
    for option, value in over_ssh.items():
        if value is not None and hosts is None:
            raise UsageError(f"{option} needs --hosts")
    if prometheus is not None:
        from gpuwatch.fleet.prometheus_api import Prometheus

        headers = {}
        for header in prometheus_headers:
            match = _HEADER.fullmatch(header)
            if match is None:
                raise UsageError("--prometheus-header needs 'NAME: VALUE'", hint="for example 'X-Scope-OrgID: lab'")
            headers[match[1]] = match[2]
        if prometheus_ca is not None and not prometheus_ca.is_file():
            raise UsageError("--prometheus-ca: there is no such file")
        server = Prometheus(
            prometheus,
            password=os.environ.get("GPUWATCH_PROMETHEUS_PASSWORD", ""),
            headers=headers,
            token_file=prometheus_token_file,
            ca_file=prometheus_ca,
        )
        arguments = ["--prometheus", server.address]
        paths = {"--prometheus-token-file": prometheus_token_file, "--prometheus-ca": prometheus_ca}
        for name, path in paths.items():
            arguments += [name, str(path)] if path is not None else []
        return ChosenHosts(server=server, arguments=tuple(arguments))
    if hosts is None:
        return None
    from gpuwatch.cli.option_types import split_words
    from gpuwatch.fleet.host_list import parse_ssh_hosts

    if shutil.which("ssh") is None:
        raise GpuwatchError("--hosts needs ssh, which is not installed here", hint="install an ssh client")
    words = {option: split_words(value, option) for option, value in over_ssh.items() if value is not None}
    return ChosenHosts(
        hosts=tuple(parse_ssh_hosts(hosts)),
        command=tuple(words.get("--remote-command", ("gpuwatch",))),
        options=tuple(words.get("--ssh-options", ())),
        arguments=("--hosts", hosts, *(word for option in words for word in (option, over_ssh[option] or ""))),
    )


HOSTS_PARAMETERS = tuple(inspect.signature(chosen_hosts).parameters)
"""The parameters of :data:`hosts_options`."""
