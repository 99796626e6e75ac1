"""``gpuwatch cause``: what a cause id means, how it is recognized, and what to do."""

from __future__ import annotations

import shutil
import sys

import click

from gpuwatch.cli.completion import complete_names
from gpuwatch.cli.output import print_document, with_links
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.suggest import did_you_mean_any
from gpuwatch.core.model.causes import CAUSES, CauseList, CauseName, CausePage
from gpuwatch.core.model.json_codec import to_json
from gpuwatch.explain.diagnosis.reference.cause_pages import causes_by_heading, page, suggested_causes

_MAX_WIDTH_COLUMNS = 100


@click.command()
@click.argument("cause_id", required=False, metavar="[ID]", shell_complete=complete_names("cause"))
@click.option("--json", "as_json", is_flag=True, help="Print JSON: id, title and page, or all ids.")
def cause(cause_id: str | None, as_json: bool) -> None:
    """Explain a cause, or list all causes.

    ID is a cause id such as memory.fragmented, as shown in findings. The page is formatted on a terminal, and Markdown
    in a pipe.
    """
    if cause_id is None:
        if as_json:
            names = tuple(CauseName(id=cause_id, title=title) for cause_id, title in CAUSES.items())
            print_document(to_json(CauseList(causes=names)))
        else:
            click.echo(with_links(_list(), sys.stdout), nl=False)
        return
    if cause_id not in CAUSES:
        raise UsageError(
            f"no such cause: {cause_id!r}{did_you_mean_any(suggested_causes(cause_id))}",
            hint="gpuwatch cause lists them all",
        )
    text = page(cause_id)
    if as_json:
        print_document(to_json(CausePage(id=cause_id, title=CAUSES[cause_id], markdown=text)))
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        console = Console()
        console.print(Markdown(text, hyperlinks=False), width=min(console.width, _MAX_WIDTH_COLUMNS))
    else:
        click.echo(text, nl=False)


def _list() -> str:
    """One line for each cause; on a narrow terminal the title is wrapped under itself."""
    from gpuwatch.share.reports.formats.fold_text import paragraph

    width = max(map(len, CAUSES))
    room = max(shutil.get_terminal_size().columns, width + 30) if sys.stdout.isatty() else 1000
    blocks: list[str] = []
    for title, causes in causes_by_heading():
        lines = [f"{title}:"]
        for cause in causes:
            lines += paragraph(CAUSES[cause], room, f"  {cause:<{width}}  ", " " * (width + 4))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"
