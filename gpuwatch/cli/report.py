"""``gpuwatch report``, ``compare`` and ``schema``: documents that were saved, made readable."""

from __future__ import annotations

from pathlib import Path

import click

from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.model.codec import DOCUMENTS, Document, NotADocument, from_json, schema_of
from gpuwatch.model.run import Comparison, Run


def read_document(path: Path) -> Document:
    """A saved document; :class:`UsageError` in one line for anything else."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    try:
        return from_json(raw)
    except NotADocument as error:
        raise UsageError(f"{path} is no gpuwatch document: {error}") from error


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write; its suffix gives the format: .html .md .json .csv .txt. Without it: text on stdout.",
)
def report(source: Path, output: Path | None) -> None:
    """Turn a saved run, comparison, snapshot or explanation (JSON) into a document for people."""
    from gpuwatch.reports.registry import format_for, render, write

    if output is not None:
        format_for(output)
    document = read_document(source)
    if output is None:
        click.echo(render(document, "text"), nl=False)
        return
    write(document, output)
    click.echo(f"written: {output}", err=True)


@click.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout (gpuwatch.comparison/1).")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write; the suffix gives the format.")
def compare(sources: tuple[Path, ...], as_json: bool, output: Path | None) -> None:
    """Put saved runs side by side, of one machine or several."""
    from gpuwatch.reports.compare import compare as side_by_side
    from gpuwatch.reports.registry import format_for, render, write

    if output is not None:
        format_for(output)
    runs: list[Run] = []
    for source in sources:
        document = read_document(source)
        if isinstance(document, Run):
            runs.append(document)
        elif isinstance(document, Comparison):
            runs.extend(document.runs)
        else:
            raise UsageError(f"{source} is no run: only runs and comparisons can be compared")
    comparison = side_by_side(runs)
    if output is not None:
        write(comparison, output)
        click.echo(f"written: {output}", err=True)
    if as_json:
        click.echo(render(comparison, "json"), nl=False)
    elif output is None:
        click.echo(render(comparison, "text"), nl=False)


@click.command()
@click.argument("name", type=click.Choice(sorted(DOCUMENTS)))
def schema(name: str) -> None:
    """Print the JSON Schema of a document."""
    import msgspec

    try:
        click.echo(msgspec.json.format(msgspec.json.encode(schema_of(name)), indent=2))
    except TypeError as error:
        raise GpuwatchError(f"the schema of {name} cannot be written: {error}") from error
