"""Classes of commands: groups whose commands are imported when they are used; options under headings in the help."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import click

from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.suggest import did_you_mean

_MIN_OPTIONS_FOR_SECTIONS = 14
"""Fewer options stay one list."""
_MAX_NAME_COLUMNS = 30
"""Width of the column of option names; click's own default."""
_HOSTS = "Many hosts"
_NODES = "Nodes of a cluster"
_SECTIONS = {
    name: heading
    for heading, names in {
        "Output": "as_json as_csv output format_name redact no_save quiet",
        "Values of the configurations": "seconds size workload memory_limit fraction virtual visible",
        "Other questions": "copies recover fits largest",
        "Duration": "rounds stop_after success budget",
        _HOSTS: "prometheus prometheus_headers prometheus_token_file prometheus_ca hosts ssh_options",
        _NODES: "on launcher_options node_timeout remote_command",
        "Dashboard": "config_file theme ascii_ tab columns gpu_fields layout gpu_order graphs "
        "sort descending tree filter_",
        "Notifications": "notify on_finding webhook",
        "Simulated GPUs": "sim tier",
    }.items()
    for name in names.split()
}
"""Heading of an option, by the name of its parameter."""


def write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Writes the options of a command: those of no heading first, then each heading by its first option's place."""
    records = {p.name or "": record for p in command.get_params(ctx) if (record := p.get_help_record(ctx)) is not None}
    headings = _SECTIONS if len(records) > _MIN_OPTIONS_FOR_SECTIONS else {}
    if "on" not in records:
        headings = headings | dict.fromkeys(headings.keys() & {"remote_command"}, _HOSTS)
    sections: dict[str, list[tuple[str, str]]] = {"Options": []}
    for name, record in records.items():
        if record[1]:  # the usage line has an argument without help
            sections.setdefault(headings.get(name, "Options"), []).append(record)
    widest = min(max(len(names) for rows in sections.values() for names, _ in rows), _MAX_NAME_COLUMNS)
    for section, rows in sections.items():
        if rows:
            with formatter.section(section):
                formatter.write_dl([(names.ljust(widest), text) for names, text in rows])


class SectionedCommand(click.Command):
    """A command whose options are under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self, ctx, formatter)


class LazyCommand(NamedTuple):
    """A command that is imported on first use, so that one does not pay for another, nor the list for all."""

    summary: str
    """Its short help."""
    section: str = "Commands"
    """The heading under which the list has it; empty for a command that no list shows."""
    path: str = ""
    """Its import path, ``module:attribute``; by default ``gpuwatch.cli.NAME:NAME``."""


class LazyGroup(click.Group):
    """A group whose commands may be :class:`LazyCommand`; its help begins with them.

    ``noun``: what its commands are called in errors.
    """

    def __init__(
        self, *args: Any, lazy: Mapping[str, LazyCommand] | None = None, noun: str = "command", **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self.lazy = dict(lazy or {})
        self.noun = noun

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*(name for name, lazy in self.lazy.items() if lazy.section), *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = self.lazy.get(cmd_name)
        if lazy is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = (lazy.path or f"gpuwatch.cli.{cmd_name}:{cmd_name}").partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands, then the options: whoever asks for help looks for a command first."""
        if not self.lazy:
            super().format_options(ctx, formatter)
            return
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.lazy.items():
            if command.section:
                sections.setdefault(command.section, []).append((name, command.summary))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows, col_max=max(map(len, self.lazy)) + 2)
        write_options(self, ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of a name; a typo is a :class:`UsageError` with the closest name."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise unknown_name_error(self.noun, args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


def unknown_name_error(noun: str, name: str, names: Iterable[str]) -> UsageError:
    """The error for an unknown name: the closest names one, and the list of all."""
    names = list(names)
    return UsageError(f"no such {noun}: {name!r}{did_you_mean(name, names)}", hint="choose from " + ", ".join(names))
