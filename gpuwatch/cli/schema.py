"""``gpuwatch schema``: the JSON Schema of a document."""

from __future__ import annotations

import click

from gpuwatch.cli.option_types import Choice
from gpuwatch.cli.output import print_document
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.model.json_codec import DOCUMENTS, WRITE_ONLY_DOCUMENTS, schema_of

_SCHEMAS = sorted(DOCUMENTS | WRITE_ONLY_DOCUMENTS)


@click.command(help=f"Print the JSON Schema of a document.\n\nNAME is one of {', '.join(_SCHEMAS)}.")
@click.argument("name", type=Choice(_SCHEMAS), metavar="NAME")
def schema(name: str) -> None:
    """Print the JSON Schema of a document."""
    import msgspec

    try:
        print_document(msgspec.json.format(msgspec.json.encode(schema_of(name)), indent=2).decode() + "\n")
    except TypeError as error:
        raise GpuwatchError(f"cannot write the schema of {name}: {error}") from error
