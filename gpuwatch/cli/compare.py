"""``gpuwatch compare``: saved runs, or snapshots of many machines, side by side."""

from __future__ import annotations

from pathlib import Path

import click

from gpuwatch.cli.input_files import read_document
from gpuwatch.cli.output import Output, output_options
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.model.comparison import Comparison, Node
from gpuwatch.core.model.json_codec import Document, runs_in
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.model.try_results import Experiment

_EXAMPLES = """\b
Examples:
  gpuwatch compare growth.json limit.json
  gpuwatch compare growth.json limit.json -o differences.html
  gpuwatch compare n*.json
"""


@click.command(epilog=_EXAMPLES)
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN|SNAPSHOT...")
@output_options("Print JSON (gpuwatch.comparison/1).")
def compare(sources: tuple[Path, ...], output: Output) -> None:
    """Compare saved runs, or snapshots of many machines, side by side.

    Runs, from one or more machines, are compared by what they requested, got and used. Given runs or snapshots of at
    least four machines, it names those that differ from the others: a different driver, a missing GPU, three times
    slower. To see what changed between two machines, reports or recordings, use gpuwatch diff.
    """
    output.publish(_compare_documents([(source, read_document(source)) for source in sources]))


def _compare_documents(documents: list[tuple[Path, Document]]) -> Document:
    from gpuwatch.fleet.cluster.node_comparison import compare_saved_runs

    runs: list[Run] = []
    nodes: dict[str, Node] = {}
    for source, document in documents:
        if isinstance(document, Run | Comparison | Experiment):
            runs += runs_in(document)
            nodes.update({node.node: node for node in document.nodes} if isinstance(document, Comparison) else {})
        elif isinstance(document, Snapshot):
            host = document.host.hostname or source.stem
            name = host if host not in nodes else f"{host} ({source.stem})"
            nodes[name] = Node(node=name, state="ok", host=document.host.hostname, snapshot=document)
        else:
            raise UsageError(
                f"{printable_path(source)} cannot be compared",
                hint="compare runs, comparisons or snapshots; two reports or recordings: gpuwatch diff A B",
            )
    if len(nodes) == 1 and not runs:
        raise UsageError("one snapshot is not enough to compare", hint="give one of each machine")
    return compare_saved_runs(runs, list(nodes.values()))
