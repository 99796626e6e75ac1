"""``gpuwatch clean``: removes the files that gpuwatch keeps on this machine."""

from __future__ import annotations

import click

from gpuwatch.core.errors import EXIT_FAILED, EXIT_OK
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.formatting.units import size

_EXAMPLES = """\b
Examples:
  gpuwatch clean --dry-run                 list what would be removed
  gpuwatch clean                           before pip uninstall gpuwatch-tui
  gpuwatch clean --recordings              recordings too
"""


@click.command(epilog=_EXAMPLES)
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@click.option("--recordings", is_flag=True, help="Also remove recordings that gpuwatch record made without FILE.")
@click.pass_context
def clean(ctx: click.Context, dry_run: bool, recordings: bool) -> None:
    """Remove what gpuwatch keeps on this machine.

    Removes this user's libraries of simulated GPUs, simulated machines, saved runs and tracebacks. Whatever is in use
    is kept, and so are your settings and, without --recordings, recordings; each is listed with the reason.
    """
    from gpuwatch.session.leftovers import leftovers, remove, remove_empty

    found, failed, freed = leftovers(recordings=recordings), 0, 0
    for leftover in found:
        verb, reason, size_bytes = ("would remove" if dry_run else "removed"), leftover.why_kept, leftover.size_bytes
        if not reason and not dry_run:
            try:
                remove(leftover)
            except OSError as error:
                reason, failed = error.strerror or str(error), failed + 1
        freed += 0 if reason else size_bytes
        end = f": {reason}" if reason else ""
        click.echo(
            f"{'kept' if reason else verb} {printable_path(leftover.path)} ({leftover.kind}, {size(size_bytes)}){end}"
        )
    if not dry_run:
        remove_empty(found)
    click.echo(f"{'would free' if dry_run else 'freed'} {size(freed)}" if found else "nothing to remove")
    ctx.exit(EXIT_FAILED if failed else EXIT_OK)
