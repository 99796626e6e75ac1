"""The systemd units that ``gpuwatch exporter`` and ``record`` print with ``--print-unit``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click
from click.core import ParameterSource

from gpuwatch.cli.shared_options import gpm_option_value

_HARDENING = """\
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
PrivateMounts=yes
KeyringMode=private
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
"""
"""Lines of [Service] for a program that reads the driver's devices and /proc.

Not ProtectHostname: the service would never see the name that the host is given after it has started.
"""


def _command_line(*words: str) -> str:
    """gpuwatch with these arguments, as ExecStart takes it."""
    program = shutil.which("gpuwatch")
    command = [str(Path(program).absolute())] if program else [sys.executable, "-m", "gpuwatch"]
    return " ".join(map(_quoted, (*command, *words)))


def _quoted(word: str) -> str:
    """A word of ExecStart: systemd has its own rules of quoting, and expands % and $."""
    word = word.replace("%", "%%").replace("$", "$$")
    if word and all(text.isalnum() or text in "-_./=+:,@%$" for text in word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


_UNIT_TEMPLATE = """\
# gpuwatch {command} --print-unit | sudo tee /etc/systemd/system/{name}.service
# sudo useradd --system --no-create-home --shell /usr/sbin/nologin gpuwatch
# sudo systemctl daemon-reload && sudo systemctl enable --now {name}
{notes}
[Unit]
Description=gpuwatch: {about}
Documentation=man:gpuwatch-{command}(1)
{after}StartLimitIntervalSec=0

[Service]
ExecStart={start}
User=gpuwatch
Restart=on-failure
RestartSec=30
{service}Nice=5

# The service may read the driver's devices and the /proc of all users; it {task}. Nothing else is allowed.
{hardening}{network}MemoryMax=512M

[Install]
WantedBy=multi-user.target
"""
_STATE_FOLDER = "/var/lib/gpuwatch"
_RECORDER_NOTES = """\
#
# Members of the group gpuwatch see its samples in their dashboards, and can go back in time:
# sudo usermod -aG gpuwatch alice, and once, after the start: sudo chmod 0640 {folder}/*.gpuwatch*
"""
_RECORDER_SERVICE = """\
StateDirectory=gpuwatch
StateDirectoryMode=0750
RuntimeDirectory=gpuwatch
RuntimeDirectoryMode=0755
UMask=0027
ReadWritePaths={folder}
Environment=XDG_STATE_HOME={state}
"""


def exporter_unit(ctx: click.Context, *, loopback: bool) -> str:
    """The exporter's unit, with the options that it was given. ``loopback``: nobody else may reach it."""
    words: list[str] = []
    folder: Path | None = ctx.params["write_job_map"]
    for parameter in ctx.command.params:
        name = parameter.name or ""
        given = ctx.params.get(name)
        if name == "print_unit" or given is None or ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        words.append(parameter.opts[-1])
        if isinstance(given, Path):
            given = given.absolute()
        if given is not True:
            words.append(f"{given:g}s" if isinstance(given, float) else str(given))
    if gpm_option_value(ctx):
        words.append("--gpm")
    writes = f"ReadWritePaths={_quoted(str(folder.absolute()))}\n" if folder is not None else ""
    return _UNIT_TEMPLATE.format(
        command="exporter",
        name="gpuwatch-exporter",
        notes="",
        about="GPU metrics for Prometheus",
        after="After=network.target\n",
        start=_command_line("exporter", *words),
        service=f"UMask=0027\n{writes}",
        task="answers at one address",
        hardening=_HARDENING,
        network="RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6\n"
        + ("IPAddressDeny=any\nIPAddressAllow=localhost\n" if loopback else ""),
    )


def recorder_unit(file: Path | None, every: float, max_size: int, max_age: float) -> str:
    """The recorder's unit: its file, the interval and the longest age in seconds, the largest size in bytes."""
    age = f"{max_age / 86_400:g}d" if max_age >= 86_400 else f"{max_age:g}s"
    limits = ["--every", f"{every:g}s", "--max-size", f"{max_size / 2**20:g}MiB", "--max-age", age]
    name = _quoted(str(file.absolute())) if file is not None else f"{_STATE_FOLDER}/%H.gpuwatch"  # %H is the host name
    folder = _quoted(str(file.absolute().parent)) if file else _STATE_FOLDER
    return _UNIT_TEMPLATE.format(
        command="record",
        name="gpuwatch",
        notes=_RECORDER_NOTES.format(folder=folder),
        about="record the GPUs and their processes",
        after="",
        start=f"{_command_line('record')} {name} {' '.join(map(_quoted, limits))}",
        service=_RECORDER_SERVICE.format(folder=folder, state=_STATE_FOLDER),
        task="writes one file",
        hardening=_HARDENING,
        network="RestrictAddressFamilies=AF_UNIX\nIPAddressDeny=any\n",
    )
