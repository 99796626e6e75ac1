"""The formats of reports. A new one: a module with ``render(document) -> str``, and one line in FORMATS."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.errors import UsageError
from gpuwatch.formatting.suggest import did_you_mean
from gpuwatch.formatting.text import harmless
from gpuwatch.model.codec import Document
from gpuwatch.reports.formats import csv, html, json, markdown, text
from gpuwatch.reports.masking import sendable
from gpuwatch.reports.writing import is_special, write_text


@dataclass(frozen=True, slots=True)
class Format:
    """One way to write a document."""

    name: str
    suffix: str
    render: Callable[[Document], str]


def _harmless(render: Callable[[Document], str]) -> Callable[[Document], str]:
    """The format, with nothing in it that steers a terminal or hides text, wherever it came from."""
    return lambda document: harmless(render(document))


FORMATS: tuple[Format, ...] = (
    Format("html", ".html", _harmless(html.render)),
    Format("markdown", ".md", _harmless(markdown.render)),
    Format("json", ".json", json.render),  # escaped, so that it stays the same data
    Format("csv", ".csv", _harmless(csv.render)),
    Format("text", ".txt", _harmless(text.render)),
)
BY_NAME = {entry.name: entry for entry in FORMATS}


def render(document: Document, format_name: str, *, width: int | None = None, redact: bool = False) -> str:
    """The document in this format, secrets masked (see :func:`sendable`); UsageError for an unknown name.

    ``text`` is for reading on a terminal: ``width`` columns (the terminal's), a run without its long tables,
    which :func:`write` puts into a file.
    """
    entry = BY_NAME.get(format_name)
    if entry is None:
        raise UsageError(
            f"no format called {format_name!r}{did_you_mean(format_name, BY_NAME)}", hint=f"known: {', '.join(BY_NAME)}"
        )
    if format_name == "text":
        columns = width or shutil.get_terminal_size((text.WIDTH, 24)).columns
        return harmless(text.render(sendable(document, redact=redact), columns, details=False))
    return entry.render(sendable(document, redact=redact))


def format_for(path: Path) -> str:
    """The name of the format that a file's suffix stands for; UsageError for another suffix.

    A device or a pipe without a suffix (``/dev/stderr``) gets text.
    """
    suffix = path.suffix.lower()
    if not suffix and is_special(path):
        return "text"
    for entry in FORMATS:
        if entry.suffix == suffix:
            return entry.name
    known = " ".join(entry.suffix for entry in FORMATS)
    meant = did_you_mean(suffix, [entry.suffix for entry in FORMATS]) if suffix else ""
    raise UsageError(f"{path.name}: no report format ends in {suffix or 'nothing'}{meant}", hint=f"use one of {known}")


def write(document: Document, path: Path, *, format_name: str | None = None, redact: bool = False) -> None:
    """Writes a report, format by suffix where none is named. See :func:`write_text`."""
    entry = BY_NAME[format_name or format_for(path)]
    write_text(entry.render(sendable(document, redact=redact)), path)
