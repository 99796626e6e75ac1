"""Writes documents to a file or stdout, with links on a terminal. The file is checked before the work begins."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from gpuwatch.cli.option_types import Choice
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.path_text import file_url, printable_path
from gpuwatch.core.formatting.terminal_support import hyperlink, links_allowed
from gpuwatch.core.safe_text import printable
from gpuwatch.core.write_file import is_special, unwritable
from gpuwatch.share.reports.report_formats import BY_NAME, SUFFIXES, format_for, render, write

if TYPE_CHECKING:
    from gpuwatch.core.model.json_codec import Document
    from gpuwatch.core.model.run import Run
    from gpuwatch.core.model.try_results import Experiment


def linked_file_name(path: Path, stream: TextIO) -> str:
    """The name of a file, on a terminal as a link to it."""
    name = printable_path(path)
    return hyperlink(name, file_url(path)) if _links_allowed(stream) else name


def with_links(text: str, stream: TextIO) -> str:
    """``text`` with each cause id as a link to its page, if ``stream`` is a terminal."""
    if not _links_allowed(stream):
        return text
    from gpuwatch.core.model.causes import CAUSES
    from gpuwatch.explain.diagnosis.reference.cause_pages import page_path

    ids = "|".join(re.escape(cause) for cause in sorted(CAUSES, key=len, reverse=True) if "." in cause)
    pattern = re.compile(rf"(?<![\w.\-/:])(?:{ids})(?![\w\-/:]|\.\w)")

    def link(match: re.Match[str]) -> str:
        page = page_path(match[0])
        return hyperlink(match[0], file_url(page)) if page is not None else match[0]

    return pattern.sub(link, text)


def _links_allowed(stream: TextIO) -> bool:
    return links_allowed(os.environ, terminal=stream.isatty())


_STDOUT = frozenset({"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"})
output_option = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help=f"Write to FILE (- for stdout), in the format of its suffix: {SUFFIXES}.",
)
format_option = click.option(
    "--format",
    "format_name",
    type=Choice(list(BY_NAME)),
    help="Use this format (default: that of the suffix; text on stdout).",
)
redact_option = click.option(
    "--redact",
    is_flag=True,
    help="Replace users, hosts, paths, addresses and ids with names such as user-1. Secrets are always masked.",
)
no_save_option = click.option("--no-save", is_flag=True, help="Do not save the run for reports and the dashboard.")


def goes_to_stdout(output: Path | None) -> bool:
    """Whether the document goes to stdout."""
    return output is None or str(output) in _STDOUT


def check_writable(output: Path | None, *, any_suffix: bool = False) -> None:
    """Rejects a file that cannot be written, before the work."""
    if output is None or goes_to_stdout(output):
        return
    name = printable_path(output)
    if os.path.isdir(output):  # noqa: PTH112  # does not raise if a parent folder is not accessible
        raise UsageError(f"cannot write {name}: it is a folder", hint="name a file in it")
    if not any_suffix:
        format_for(output)
    folder = Path(os.path.realpath(output)).parent
    try:
        os.stat(folder)  # noqa: PTH116
    except PermissionError:
        raise UsageError(
            f"cannot write {name}: this user may not access its folder", hint="choose another folder"
        ) from None
    except OSError:
        pass  # reported below
    if not os.path.isdir(folder):  # noqa: PTH112
        raise UsageError(f"cannot write {name}: its folder does not exist", hint=f"mkdir -p {printable_path(folder)}")
    if not os.access(folder, os.W_OK | os.X_OK) and not is_special(output):
        raise UsageError(f"cannot write {name}: its folder is not writable", hint="choose another folder")
    reason = unwritable(output)
    if reason:
        raise UsageError(f"cannot write {name}: {reason}", hint="choose another file")


def print_line(text: str, *, links: bool = False) -> None:
    """Prints one line to stderr, with control characters escaped; ``links``: with cause ids as links to their pages."""
    shown = printable(text)
    click.echo(with_links(shown, sys.stderr) if links else shown, err=True)


def print_written(path: Path) -> None:
    """Prints to stderr which file was written, on a terminal as a link."""
    click.echo(f"written: {linked_file_name(path, sys.stderr)}", err=True)


def save_run(document: Run | Experiment) -> bool:
    """Saves a run, or an experiment with its runs; if that fails, prints one line to stderr, and returns False."""
    from gpuwatch.core.model.run import Run
    from gpuwatch.machine.history.saved_runs import RunStore

    store = RunStore()
    try:
        if isinstance(document, Run):
            store.save(document)
        else:
            store.save_experiment(document)
    except OSError as error:
        reason = f"cannot save the run in {store.folder}: {error.strerror or error}"
        print_line(f"gpuwatch: {reason} (--no-save skips saving)")
        return False
    return True


def print_redaction_note() -> None:
    """Says on stderr what redaction cannot know, which documents for programs cannot say in their first lines."""
    from gpuwatch.core.masking.masked_documents import NOTE

    print_line(NOTE)


def print_document(text: str) -> None:
    """Prints a document for programs to stdout: always UTF-8."""
    click.echo(text.encode("utf-8", "backslashreplace"), nl=False)


def publish(
    document: Document,
    output: Path | None,
    *,
    as_json: bool = False,
    format_name: str | None = None,
    redact: bool = False,
) -> None:
    """Writes the file and reports it, or prints to stdout; ``--json`` prints as well as writing the file."""
    to_file = output is not None and not goes_to_stdout(output)
    name = "json" if as_json else format_name or (format_for(output) if output is not None and to_file else "text")
    if redact and not BY_NAME[name].note:
        print_redaction_note()
    if output is not None and to_file:
        write(document, output, format_name=format_name, redact=redact)
        print_written(output)
        if not as_json:
            return
    rendered = render(document, name, redact=redact)
    if name == "text":
        # A link names this host and a path: not where both are redacted.
        click.echo(rendered if redact else with_links(rendered, sys.stdout), nl=False)
    else:
        print_document(rendered)
