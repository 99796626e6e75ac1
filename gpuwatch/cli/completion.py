"""``gpuwatch completion``: scripts for shells, and the names that they complete.

click handles the shells. Names are looked up only when a shell asks, in files and tables: no framework and no driver
is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import click
from click.shell_completion import CompletionItem, get_completion_class

from gpuwatch.cli.choice import Choice
from gpuwatch.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_GPUWATCH_COMPLETE"

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _configurations() -> Mapping[str, str]:
    from gpuwatch.probing.locate import names_and_titles

    return names_and_titles()


def _columns() -> Mapping[str, str]:
    from gpuwatch.ui.tables.columns import COLUMNS

    return {column.id: column.help for column in COLUMNS}


def _fields() -> Mapping[str, str]:
    from gpuwatch.ui.tables.gpu_fields import ALL

    return {field.id: field.help for field in ALL}


def _tabs() -> Mapping[str, str]:
    from gpuwatch.ui.settings.tabs import TABS

    return {tab.id: tab.help for tab in TABS}


def _themes() -> Mapping[str, str]:
    from gpuwatch.ui.drawing.theme import known_themes

    return dict.fromkeys(known_themes(), "")


def _filters() -> Mapping[str, str]:
    from gpuwatch.ui.tables.filter import FIELDS, SIGNS

    # Patterns with < and > need quotes, which a completion cannot add around what is typed next.
    return {f"{name}:": "" for name in FIELDS if SIGNS[name] == ":"}


def _causes() -> Mapping[str, str]:
    from gpuwatch.model.findings import CAUSES

    return CAUSES


def _shapes() -> Mapping[str, str]:
    return {"1x24GiB": "one simulated GPU", "2x24GiB": "two", "8x80GiB": "eight", "16x80GiB": "sixteen"}


NAMES: dict[str, Callable[[], Mapping[str, str]]] = {
    "causes": _causes,
    "configurations": _configurations,
    "columns": _columns,
    "fields": _fields,
    "tabs": _tabs,
    "themes": _themes,
    "filters": _filters,
    "shapes": _shapes,
}
"""Names to complete, with a short explanation for shells that show one."""


def _items(names: Mapping[str, str], begun: str, before: str = "", but: Iterable[str] = ()) -> list[CompletionItem]:
    left_out = set(but)
    return [
        CompletionItem(before + name, help=text or None)
        for name, text in names.items()
        if name.startswith(begun) and name not in left_out
    ]


def named(kind: str) -> Complete:
    """Completes one name of a kind of :data:`NAMES`."""

    def complete(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        return _items(NAMES[kind](), begun)

    return complete


def listed(kind: str) -> Complete:
    """Completes the last of several comma-separated names, each once."""

    def complete(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        before, comma, last = begun.rpartition(",")
        return _items(NAMES[kind](), last, before + comma, before.split(","))

    return complete


def files(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Leaves file names to the shell."""
    return [CompletionItem(begun, type="file")]


@click.command()
@click.argument("shell", type=Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that lets a shell complete gpuwatch's commands, options and names.

    \b
    bash  gpuwatch completion bash > ~/.local/share/bash-completion/completions/gpuwatch
    zsh   gpuwatch completion zsh > _gpuwatch, in a folder of your $fpath
    fish  gpuwatch completion fish > ~/.config/fish/completions/gpuwatch.fish
    """
    kind = get_completion_class(shell)
    root = ctx.find_root()
    if kind is None:
        raise UsageError(f"there is no completion for {shell}", hint="there is one for " + ", ".join(SHELLS))
    source = kind(root.command, {}, "gpuwatch", _VARIABLE).source()
    if shell == "fish":
        # click splits answers at every comma, but lists of columns contain commas.
        source = source.replace('string split ","', 'string split -m 1 ","')
    click.echo(source)
