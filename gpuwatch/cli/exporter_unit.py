"""The systemd unit that ``gpuwatch exporter --print-unit`` prints."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from gpuwatch.cli.systemd_unit import HARDENING, command_line, quoted

_UNIT = """\
# gpuwatch exporter --print-unit | sudo tee /etc/systemd/system/gpuwatch-exporter.service
# sudo useradd --system --no-create-home --shell /usr/sbin/nologin gpuwatch
# sudo systemctl daemon-reload && sudo systemctl enable --now gpuwatch-exporter

[Unit]
Description=gpuwatch: metrics of the GPUs for Prometheus
Documentation=man:gpuwatch-exporter(1)
After=network.target
StartLimitIntervalSec=0

[Service]
ExecStart={start}
User=gpuwatch
Restart=on-failure
RestartSec=30
UMask=0027
{writes}Nice=5

# It reads the driver's devices and the /proc of all users, and answers at one address: nothing else is left to it.
{hardening}RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
{reached}MemoryMax=512M

[Install]
WantedBy=multi-user.target
"""
_LOCAL = "IPAddressDeny=any\nIPAddressAllow=localhost\n"


def unit(ctx: click.Context, *, loopback: bool) -> str:
    """The unit, with the options that were given to the command. ``loopback``: nobody else may reach it."""
    words: list[str] = []
    folder: Path | None = ctx.params["write_job_map"]
    for parameter in ctx.command.params:
        name = parameter.name or ""
        given = ctx.params.get(name)
        if name == "print_unit" or given is None or ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        words.append(parameter.opts[-1])
        if given is True:
            continue
        if isinstance(given, Path):
            given = given.absolute()
        words.append(f"{given:g}s" if isinstance(given, float) else str(given))
    if ctx.meta.get("gpuwatch.gpm"):
        words.append("--gpm")
    return _UNIT.format(
        start=command_line("exporter", *words),
        writes=f"ReadWritePaths={quoted(str(folder.absolute()))}\n" if folder is not None else "",
        hardening=HARDENING,
        reached=_LOCAL if loopback else "",
    )
