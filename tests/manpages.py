"""The man pages in ``gpuwatch/docs/man``, written from the commands, and the index of the pages of causes, from their
table: ``python -m tests.manpages``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from click_man.core import generate_man_page

from gpuwatch import __version__
from gpuwatch.cli.main import cli
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.explain.diagnosis.reference import cause_pages

FOLDER = Path(__file__).resolve().parents[1] / "gpuwatch/docs/man"
INDEX = FOLDER.parents[1] / cause_pages.FOLDER / "README.md"
ONE_PAGE = {"gpuwatch-sim-fault"}
"""Groups whose commands are too small for pages of their own."""


def index_page() -> str:
    """The list of all pages of causes in Markdown (``README.md`` of their folder)."""
    lines = [
        "# Causes",
        "",
        "All causes that gpuwatch recognizes. `gpuwatch cause ID` prints a page, and `p` on the Findings tab opens it.",
        "Findings of equal severity are sorted: what ended the work, then why no GPU was usable, then the rest.",
    ]
    for title, causes in cause_pages.causes_by_heading():
        lines += ["", f"## {title}", "", "| id | cause |", "|---|---|"]
        lines += [f"| [`{cause}`]({cause}.md) | {CAUSES[cause]} |" for cause in causes]
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """Every page by its file's name."""
    return dict(_pages(click.Context(cli, info_name="gpuwatch")))


def _pages(ctx: click.Context) -> Iterator[tuple[str, str]]:
    name = _name(ctx)
    children = _children(ctx)
    # click-man cuts the summaries of commands short: theirs are added here, whole.
    text, _, _ = generate_man_page(ctx, version=__version__).partition("\n.SH COMMANDS")
    lines = text.replace("\b\n", "").splitlines()
    # Without the day on which it was made: the same commands give the same page.
    lines[0] = f'.TH "{name.upper()}" "1" "" "gpuwatch {__version__}" "gpuwatch manual"'
    lines[2] = f"{_escaped(name)} \\- {_escaped(ctx.command.get_short_help_str(limit=300).rstrip('.'))}"
    if children:
        lines.append(".SH COMMANDS")
    for child in children:
        usage = " ".join(child.command.collect_usage_pieces(child))
        lines += [".TP", f"\\fB{child.info_name}\\fP {_escaped(usage)}", child.command.get_short_help_str(limit=300)]
        if name not in ONE_PAGE:
            lines.append(f"See \\fB{_escaped(_name(child))}\\fP(1).")
    if ctx.command.epilog:
        examples = ctx.command.epilog.replace("\b\n", "").removeprefix("Examples:\n")
        lines += [".SH EXAMPLES", ".nf", *_escaped(examples).splitlines(), ".fi"]
    yield f"{name}.1", "\n".join(lines) + "\n"
    if name not in ONE_PAGE:
        for child in children:
            yield from _pages(child)


def _name(ctx: click.Context) -> str:
    return ctx.command_path.replace(" ", "-")


def _escaped(text: str) -> str:
    """Text as roff prints it: a hyphen that can be copied, and no line that is taken for a request."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in lines)


def _children(ctx: click.Context) -> list[click.Context]:
    if not isinstance(ctx.command, click.Group):
        return []
    found = [(name, ctx.command.get_command(ctx, name)) for name in ctx.command.list_commands(ctx)]
    return [click.Context(command, info_name=name, parent=ctx) for name, command in found if command is not None]


def main() -> None:
    """Writes them all, and removes those of commands that are gone."""
    FOLDER.mkdir(exist_ok=True)
    written = pages()
    for path in FOLDER.glob("*.1"):
        if path.name not in written:
            path.unlink()
    for name, text in written.items():
        (FOLDER / name).write_text(text)
    INDEX.write_text(index_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
