"""Where documents go: a file by its suffix, or stdout; checked before the work, written whole after it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuwatch.errors import UsageError
from gpuwatch.formatting.terminal import file_name

if TYPE_CHECKING:
    from gpuwatch.model.codec import Document

_F = TypeVar("_F", bound=Callable[..., Any])

_STDOUT = frozenset({"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"})


def output_option(command: _F) -> _F:
    """``-o FILE``, as the parameter ``output``."""
    return click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path, allow_dash=True),
        metavar="FILE",
        help="Write to a file; its suffix gives the format: .html .md .json .csv .txt. With -: stdout.",
    )(command)


def redact_option(command: _F) -> _F:
    """``--redact``, as the parameter ``redact``."""
    return click.option(
        "--redact",
        is_flag=True,
        help="Replace users, hosts, paths, addresses and ids by names such as user-1; root and other accounts of the"
        " system, and folders that are the same everywhere, stay. Secrets are always masked.",
    )(command)


def to_stdout(output: Path | None) -> bool:
    """Whether the document goes to stdout."""
    return output is None or str(output) in _STDOUT


def check_output(output: Path | None, *, any_suffix: bool = False) -> None:
    """A file that cannot be written is said before the work, not after it."""
    from gpuwatch.reports.registry import format_for
    from gpuwatch.reports.writing import is_special, unwritable

    if output is None or to_stdout(output):
        return
    name = file_name(output)
    if output.is_dir():
        raise UsageError(f"cannot write {name}: it is a folder", hint="name a file in it")
    if not any_suffix:
        format_for(output)
    folder = Path(os.path.realpath(output)).parent
    if not folder.is_dir():
        raise UsageError(f"cannot write {name}: its folder does not exist", hint=f"mkdir -p {file_name(folder)}")
    if not os.access(folder, os.W_OK | os.X_OK) and not is_special(output):
        raise UsageError(f"cannot write {name}: its folder is not writable", hint="choose another folder")
    why = unwritable(output)
    if why:
        raise UsageError(f"cannot write {name}: {why}", hint="choose another file")


def data(text: str) -> None:
    """A document for a program on stdout: UTF-8, whatever the locale is."""
    click.echo(text.encode("utf-8", "backslashreplace"), nl=False)


def publish(
    document: Document,
    output: Path | None,
    *,
    as_json: bool = False,
    format_name: str | None = None,
    redact: bool = False,
) -> None:
    """Writes the file, and says so; or prints to stdout. ``--json`` prints beside a file, too."""
    from gpuwatch.reports.registry import render, write

    if output is not None and not to_stdout(output):
        write(document, output, format_name=format_name, redact=redact)
        click.echo(f"written: {file_name(output)}", err=True)
        if not as_json:
            return
    name = "json" if as_json else format_name or "text"
    rendered = render(document, name, redact=redact)
    if name == "text":
        click.echo(rendered, nl=False)
    else:
        data(rendered)
