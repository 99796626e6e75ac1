"""``gpuwatch completion``: scripts for shells, and the names that they complete.

click handles the shells. Names come from files and tables, only when a shell asks: no framework or driver is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import click
from click.shell_completion import CompletionItem, get_completion_class

from gpuwatch.cli.option_types import Choice

SHELLS = ("bash", "zsh", "fish")


def _machine_names() -> Mapping[str, str]:
    from gpuwatch.sim.gpu_models import MODELS

    sizes = {"1x24GiB": "one simulated GPU", "2x24GiB": "two", "8x80GiB": "eight", "16x80GiB": "sixteen"}
    return sizes | {f"1x{key}": model.name for key, model in MODELS.items()}


def _configuration_names() -> Mapping[str, str]:
    from gpuwatch.experiment.probing.probe_scripts import names_and_titles

    return names_and_titles()


def _setting_choices(field: str) -> Mapping[str, str]:
    """What may be chosen for a field of the preferences."""
    from gpuwatch.ui.settings.preferences import SETTINGS

    return next(setting.choices() for setting in SETTINGS if setting.field == field and setting.choices)


def _filter_words() -> Mapping[str, str]:
    from gpuwatch.ui.tables.process_filter import FIELD_OPERATORS, FIELDS

    # Patterns with < and > need quotes, which a completion cannot add around what is typed next.
    return {f"{name}:": "" for name in FIELDS if FIELD_OPERATORS[name] == ":"}


def _cause_ids() -> Mapping[str, str]:
    from gpuwatch.core.model.causes import CAUSES

    return CAUSES


_SETTINGS = ("columns", "sort", "gpu_fields", "layout", "gpu_order", "graphs", "tab", "theme")
NAME_SOURCES: dict[str, Callable[[], Mapping[str, str]]] = {
    "cause": _cause_ids,
    "config": _configuration_names,
    "filter": _filter_words,
    "sim": _machine_names,
    **{field: partial(_setting_choices, field) for field in _SETTINGS},
}
"""Names to complete, with a short explanation for shells that show one; by option."""


def complete_names(
    kind: str, *, several: bool = False
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Completes a name of :data:`NAME_SOURCES`; with ``several`` the last of a comma-separated list, each once."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        listed = before.split(",")
        return [
            CompletionItem(before + comma + name, help=text or None)
            for name, text in NAME_SOURCES[kind]().items()
            if name.startswith(last) and name not in listed
        ]

    return complete


def complete_files(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Leaves file names to the shell."""
    return [CompletionItem(incomplete, type="file")]


@click.command()
@click.argument("shell", type=Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a completion script for bash, zsh or fish.

    It completes commands, options and names. To install it:

    \b
    bash  gpuwatch completion bash > ~/.local/share/bash-completion/completions/gpuwatch
    zsh   gpuwatch completion zsh > _gpuwatch    (in a folder of your $fpath)
    fish  gpuwatch completion fish > ~/.config/fish/completions/gpuwatch.fish

    Man pages are in share/man of the environment that gpuwatch is installed in. For man gpuwatch-probe:

    \b
    export MANPATH="$(dirname "$(dirname "$(readlink -f "$(command -v gpuwatch)")")")/share/man:"
    """
    kind = get_completion_class(shell)
    assert kind is not None
    source = kind(ctx.find_root().command, {}, "gpuwatch", "_GPUWATCH_COMPLETE").source()
    if shell == "fish":
        # click splits answers at every comma, but lists of columns contain commas.
        source = source.replace('string split ","', 'string split -m 1 ","')
    click.echo(source)
