"""Options of the dashboard: the user's preferences, from the command line or the settings file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuwatch.cli.completion import listed, named
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.ui.settings.preferences import Loaded

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--config-file",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="GPUWATCH_CONFIG_FILE",
        show_envvar=True,
        help="Settings of the dashboard, as w in it saves them (default: gpuwatch/settings.toml in the user's folder "
        "of settings, ~/.config).",
    ),
    click.option(
        "--read-only/--no-read-only",
        default=None,
        help="No signals to processes from the dashboard.",
        show_default="no",
    ),
    click.option("--theme", metavar="NAME", shell_complete=named("themes"), help="Colours of the dashboard."),
    click.option(
        "--ascii/--no-ascii",
        "ascii_",
        default=None,
        help="Draw with ASCII only (default: if TERM or the locale cannot show more).",
    ),
    click.option("--tab", metavar="NAME", shell_complete=named("tabs"), help="Tab that the dashboard opens with."),
    click.option(
        "--columns",
        metavar="NAME,...",
        shell_complete=listed("columns"),
        help="Columns of the dashboard's processes, in this order.",
    ),
    click.option(
        "--gpu-fields",
        metavar="NAME,...",
        shell_complete=listed("fields"),
        help="Fields that the dashboard shows for each GPU beside its bars, in this order.",
    ),
    click.option(
        "--sort", metavar="COLUMN", shell_complete=named("columns"), help="Column by which the processes are sorted."
    ),
    click.option(
        "--filter",
        "filter_",
        metavar="WORDS",
        shell_complete=named("filters"),
        help="Show processes that match: words, user:alice, gpu:1, mem>2GiB, -xorg (not).",
    ),
)
_FIELDS = {
    "interval": "interval",
    "read_only": "read_only",
    "gpm": "gpm",
    "theme": "theme",
    "ascii_": "ascii",
    "tab": "tab",
    "columns": "columns",
    "gpu_fields": "gpu_fields",
    "sort": "sort",
    "filter_": "filter",
}
"""Parameter of the command to field of the preferences."""


def dashboard_options(command: F) -> F:
    """Adds all options of the dashboard."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def preferred(config_file: Path | None, given: dict[str, Any]) -> Loaded:
    """The settings file's preferences, overridden by the command line.

    :class:`UsageError` for an invalid option; errors in the file are in the result.
    """
    from gpuwatch.ui.settings import preferences

    path = config_file.expanduser() if config_file is not None else preferences.default_path()
    loaded = preferences.load(path)
    checks = {setting.field: setting.check for setting in preferences.SETTINGS}
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        field = _FIELDS[name]
        if field in ("columns", "gpu_fields"):
            value = [part.strip() for part in value.split(",") if part.strip()]
        try:
            changes[field] = checks[field](value)
        except preferences.Wrong as wrong:
            option = "--" + name.strip("_").replace("_", "-")
            raise UsageError(f"{option} {wrong}", hint=_known(field)) from None
        if field == "sort":
            changes["descending"] = None
    return replace(loaded, preferences=replace(loaded.preferences, **changes))


def _known(field: str) -> str:
    from gpuwatch.cli.completion import NAMES

    kind = {
        "columns": "columns",
        "sort": "columns",
        "gpu_fields": "fields",
        "tab": "tabs",
        "theme": "themes",
    }.get(field)
    return "there are " + ", ".join(NAMES[kind]()) if kind else "see gpuwatch --help"
