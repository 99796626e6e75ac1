"""Output: its options, documents to a file or stdout, saved runs, lines to stderr, links on a terminal."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from gpuwatch.cli.option_types import Choice
from gpuwatch.cli.shared_options import CommandFunction, option_set
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


def output_file_option(text: str, *, required: bool = False) -> Callable[[CommandFunction], CommandFunction]:
    """``-o FILE``, with this help."""
    return click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", required=required, help=text)


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


def file_unless_stdout(output: Path | None) -> Path | None:
    """The file of ``-o``; None if it is a name of stdout, or was not given."""
    return None if output is None or str(output) in _STDOUT else output


def check_writable(output: Path | None, *, any_suffix: bool = False) -> None:
    """Rejects a file that cannot be written, before the work."""
    output = file_unless_stdout(output)
    if output is None:
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


@dataclass(frozen=True, slots=True)
class Output:
    """Where the document of a command goes, and in which form: the values of :func:`output_options`."""

    file: Path | None
    """None: stdout."""
    as_json: bool
    format_name: str | None
    """None: by the suffix of the file, text on stdout."""
    redact: bool

    def publish(self, document: Document) -> None:
        """Writes the file and reports it, or prints to stdout; ``--json`` prints as well as writing the file."""
        name = "json" if self.as_json else self.format_name or (format_for(self.file) if self.file else "text")
        if self.redact and not BY_NAME[name].note:
            print_redaction_note()
        if self.file is not None:
            write(document, self.file, format_name=self.format_name, redact=self.redact)
            print_written(self.file)
            if not self.as_json:
                return
        rendered = render(document, name, redact=self.redact)
        if name == "text":
            # A link names this host and a path: not where both are redacted.
            click.echo(rendered if self.redact else with_links(rendered, sys.stdout), nl=False)
        else:
            print_document(rendered)


def output_options(json_text: str, csv_text: str = "", *, with_format: bool = False) -> Callable[[Any], Any]:
    """``--json``, ``-o`` and ``--redact``, also ``--csv`` and ``--format``: the command gets an :class:`Output`.

    The file is checked before the command begins.
    """
    options = option_set(
        click.option("--json", "as_json", is_flag=True, help=json_text),
        *([click.option("--csv", "as_csv", is_flag=True, help=csv_text)] if csv_text else []),
        output_file_option(f"Write to FILE (- for stdout), in the format of its suffix: {SUFFIXES}."),
        *([format_option] if with_format else []),
        redact_option,
    )

    def declare(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(
            output: Path | None,
            as_json: bool,
            redact: bool,
            as_csv: bool = False,
            format_name: str | None = None,
            **others: Any,
        ) -> None:
            given = {"--json": as_json and format_name != "json", "--csv": as_csv, "--format": format_name is not None}
            if len(names := [name for name, value in given.items() if value]) > 1:
                raise UsageError(f"{' and '.join(names)} cannot be combined")
            format_name = "csv" if as_csv else format_name
            check_writable(output, any_suffix=format_name is not None)
            command(output=Output(file_unless_stdout(output), as_json, format_name, redact), **others)

        return options(run)

    return declare
