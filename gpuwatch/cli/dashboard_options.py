"""Options of the dashboard: the user's preferences, from the command line or the settings file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.completion import NAME_SOURCES, complete_names
from gpuwatch.cli.shared_options import option_set
from gpuwatch.core import user_folders
from gpuwatch.core.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.ui.settings.settings_file import LoadedSettings


def _choice_option(
    option: str, text: str, *, several: bool = False, metavar: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option that takes a name, or with ``several`` a list, of :data:`NAME_SOURCES`."""
    return click.option(
        option,
        metavar=metavar or ("NAME,..." if several else "NAME"),
        shell_complete=complete_names(option[2:].replace("-", "_"), several=several),
        help=text,
    )


_OPTIONS = (
    click.option(
        "--config-file",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="GPUWATCH_CONFIG_FILE",
        show_envvar=True,
        help="Read and save settings here (default: ~/.config/gpuwatch/settings.toml).",
    ),
    _choice_option("--theme", "Use this color theme."),
    click.option(
        "--ascii/--no-ascii",
        "ascii_",
        default=None,
        help="Draw with ASCII only (default: if TERM or the locale requires it).",
    ),
    _choice_option("--tab", "Open this tab first."),
    _choice_option("--columns", "Show these process columns, in this order.", several=True),
    _choice_option("--gpu-fields", "Show these fields of each GPU next to its bars, in this order.", several=True),
    _choice_option("--layout", "Draw the GPUs as lines, cards or graphs (default: automatic)."),
    _choice_option(
        "--gpu-order", "Sort GPUs by utilization, memory, temperature or power, highest first (default: index)."
    ),
    _choice_option("--graphs", "Draw these graphs in cards, in this order.", several=True),
    _choice_option("--sort", "Sort processes, or hosts, by this column.", metavar="COLUMN"),
    click.option(
        "--descending/--no-descending",
        default=None,
        help="Sort in descending or ascending order (default: depends on the column).",
    ),
    click.option("--tree/--no-tree", default=None, help="Show the process tree (default: no)."),
    click.option(
        "--filter",
        "filter_",
        metavar="WORDS",
        shell_complete=complete_names("filter"),
        help="Show only processes that match: words, user:alice, gpu:1, mem>2GiB, -xorg (not). In a list of hosts: "
        "show only hosts that match, such as host~dgx, free, 'mem>20GiB free', wrong.",
    ),
)


_LIVE_ONLY_OPTIONS = (
    click.option("--read-only/--no-read-only", default=None, help="Never send signals to processes (default: no)."),
    click.option(
        "--own-collector/--no-own-collector",
        default=None,
        help="Query the driver even if gpuwatch record is running on this machine and could supply the samples "
        "(default: no).",
    ),
    click.option(
        "--notify/--no-notify",
        default=None,
        help="Send a desktop notification, through the terminal (OSC 9 or 777), when a warning or error begins or ends "
        "(default: no).",
    ),
)
"""Options that mean nothing for a recording."""


dashboard_options = option_set(*_OPTIONS, *_LIVE_ONLY_OPTIONS)
replay_options = option_set(*_OPTIONS)
"""Those of a dashboard that shows a recording."""


def loaded_preferences(config_file: Path | None, given: dict[str, Any]) -> LoadedSettings:
    """The settings file's preferences, overridden by the command line.

    :class:`UsageError` for an invalid option; errors in the file are in the result.
    """
    from gpuwatch.ui.settings import preferences, settings_file

    path = user_folders.expand_home(config_file) if config_file is not None else settings_file.default_path()
    loaded = settings_file.load_settings(path)
    checks = {setting.field: setting.convert for setting in preferences.SETTINGS}
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        field = name.rstrip("_")
        if field in ("columns", "gpu_fields", "graphs"):
            value = [part.strip() for part in value.split(",") if part.strip()]
        try:
            changes[field] = checks[field](value)
        except preferences.InvalidValue as error:
            choices = NAME_SOURCES.get(field) if field != "filter" else None
            hint = "choose from " + ", ".join(choices()) if choices else "see gpuwatch --help"
            raise UsageError(f"--{field.replace('_', '-')} {error}", hint=hint) from None
    if "sort" in changes:
        changes.setdefault("descending", None)  # the file's order is that of its own column
    return replace(loaded, preferences=replace(loaded.preferences, **changes))
