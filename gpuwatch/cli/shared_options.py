"""Options that several commands share, and what their values stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from gpuwatch.cli.completion import complete_files
from gpuwatch.cli.option_types import Choice
from gpuwatch.core.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.core.model.snapshot import Snapshot
    from gpuwatch.session.alerts import Alerts

_GPM_KEY = "gpuwatch.gpm"
ALLOWED_BEFORE_COMMAND = frozenset({"--sim", "--gpm"})
"""Options that may also come before their command."""
CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])


def option_set(*options: Callable[[Any], Any]) -> Callable[[CommandFunction], CommandFunction]:
    """Several options as one decorator, in this order."""

    def add(command: CommandFunction) -> CommandFunction:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def period_options(default: str = "all") -> Callable[[CommandFunction], CommandFunction]:
    """``--since`` and ``--until``: a part of a recording."""
    return option_set(
        click.option(
            "--since",
            metavar="TIME",
            help="Use the recording from this time on: 14:05, '20 min ago', 2h (before its end), 2026-05-11T14:05 "
            f"(default: {default}).",
        ),
        click.option("--until", metavar="TIME", help="Use it up to this time: 14:05, '20 min ago', 2026-05-11T14:05."),
    )


python_option = click.option(
    "--python", metavar="PATH", shell_complete=complete_files, help="Use the framework of this Python interpreter."
)
framework_option = click.option(
    "--framework",
    type=Choice(["tensorflow", "torch"]),
    help="Check this framework (default: TensorFlow, else PyTorch).",
)


def _want_gpm(ctx: click.Context, parameter: click.Parameter, value: bool | None) -> None:
    if value is not None:
        ctx.meta[_GPM_KEY] = value


gpm_option = click.option(
    "--gpm/--no-gpm",
    default=None,
    callback=_want_gpm,
    expose_value=False,
    help="Also read SM, tensor core, pipe and DRAM activity (GPM; Hopper and later), with the counters that DCGM and "
    "profilers use (default: no).",
)
"""``--gpm``: also read the activity of the GPUs' parts (:func:`gpm_option_value`)."""


def gpm_option_value(ctx: click.Context) -> bool | None:
    """The value of ``--gpm`` or ``--no-gpm``, here or before the command; None if neither was given."""
    return cast("bool | None", ctx.meta.get(_GPM_KEY))


alert_options = option_set(
    click.option(
        "--on-finding",
        metavar="COMMAND",
        help="Run this shell command when a warning or error begins and ends, with the finding as JSON on stdin.",
    ),
    click.option(
        "--webhook",
        metavar="URL",
        envvar="GPUWATCH_WEBHOOK",
        show_envvar=True,
        help="Post the same JSON to this URL.",
    ),
)
"""``--on-finding`` and ``--webhook``: who is told of findings (:func:`alerts_of`)."""


def alerts_of(on_finding: str | None, webhook: str | None, notify: bool) -> Alerts | None:
    """The alerts that these options ask for; None without any. Raises :class:`UsageError` for an invalid URL."""
    if on_finding is None and webhook is None and not notify:
        return None
    from gpuwatch.session.alert_delivery import checked_url
    from gpuwatch.session.alerts import Alerts

    return Alerts(command=on_finding, webhook=None if webhook is None else checked_url(webhook), notify=notify)


def check_gpus(gpu: str | None) -> None:
    """Rejects a malformed ``--gpu`` list, on any machine."""
    requested = [entry.strip() for entry in gpu.split(",")] if gpu is not None else []
    if not all(requested):
        raise UsageError(f"--gpu {gpu}: an entry is empty", hint="list GPUs by index or UUID, for example 0,1")
    twice = next((entry for entry in requested if requested.count(entry) > 1), None)
    if twice is not None:
        raise UsageError(f"--gpu {gpu}: GPU {twice} is listed twice", hint="list each GPU once")


def chosen_gpus(gpu: str, machine: Snapshot | None) -> tuple[str, ...]:
    """UUIDs of the chosen GPUs, in their order; UsageError for one that is not here."""
    devices = () if machine is None else machine.devices
    chosen = []
    for requested in map(str.strip, gpu.split(",")):
        found = [
            device
            for device in devices
            if (str(device.index) == requested if requested.isdigit() else device.uuid.startswith(requested))
        ]
        if len(found) != 1:
            present = ", ".join(f"{device.index} {device.uuid}" for device in devices) or "none"
            raise UsageError(f"--gpu {requested}: no such GPU", hint=f"GPUs here: {present}")
        if found[0].uuid in chosen:
            raise UsageError(f"--gpu {gpu}: GPU {found[0].index} is listed twice", hint="list each GPU once")
        chosen.append(found[0].uuid)
    return tuple(chosen)
