"""The options of a command under headings: what it does first, what many commands share below."""

from __future__ import annotations

import click

_FROM = 14
"""Fewer options stay one list."""
_WIDEST = 30
"""Of the column of names, as click has it."""
_HOSTS = "Many hosts"
_NODES = "Nodes of a cluster"
_LOOK = "Dashboard"
_SIM = "Simulated GPUs"
_TELL = "Notifications"
_OUTPUT = "Output"
_SECTIONS: dict[str, str] = {
    **dict.fromkeys(("as_json", "as_csv", "output", "format_name", "redact", "no_save", "quiet"), _OUTPUT),
    **dict.fromkeys(
        ("seconds", "size", "workload", "memory_limit", "fraction", "virtual", "visible"),
        "Values of the configurations",
    ),
    **dict.fromkeys(("copies", "recover", "fits", "largest"), "Other questions"),
    **dict.fromkeys(("rounds", "stop_after", "success", "budget"), "Duration"),
    **dict.fromkeys(
        ("prometheus", "prometheus_headers", "prometheus_token_file", "prometheus_ca", "hosts", "ssh_options"), _HOSTS
    ),
    **dict.fromkeys(("on", "launcher_options", "node_timeout"), _NODES),
    **dict.fromkeys(
        (
            *("config_file", "theme", "ascii_", "tab", "columns", "gpu_fields", "layout", "gpu_order", "graphs"),
            *("sort", "descending", "tree", "filter_"),
        ),
        _LOOK,
    ),
    **dict.fromkeys(("notify", "on_finding", "webhook"), _TELL),
    **dict.fromkeys(("sim", "tier"), _SIM),
}
"""Heading of an option, by the name of its parameter."""


def write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Writes the options of a command: those of no heading first, then each heading by its first option's place."""
    params = [param for param in command.get_params(ctx) if param.get_help_record(ctx) is not None]
    known = {param.name for param in params}
    sections: dict[str, list[tuple[str, str]]] = {"Options": []}
    for param in params:
        section = _SECTIONS.get(param.name or "", "Options") if len(params) > _FROM else "Options"
        if param.name == "remote_command":  # of hosts, or of nodes
            section = _NODES if "on" in known else _HOSTS
        record = param.get_help_record(ctx)
        assert record is not None
        sections.setdefault(section, []).append(record)
    widest = min(max(len(names) for rows in sections.values() for names, _ in rows), _WIDEST)
    for section, rows in sections.items():
        if rows:
            with formatter.section(section):
                formatter.write_dl([(names.ljust(widest), text) for names, text in rows])


class Sectioned(click.Command):
    """A command whose options are under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self, ctx, formatter)
