"""The formats of reports. To add one: a module ``formats/<name>.py`` with ``render``, and one line in FORMATS."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.suggest import did_you_mean
from gpuwatch.core.safe_text import harmless
from gpuwatch.core.write_file import is_special, terminal_columns, write_text

if TYPE_CHECKING:
    from gpuwatch.core.model.json_codec import Document


@dataclass(frozen=True, slots=True)
class Format:
    """One way to write a document: :mod:`gpuwatch.share.reports.formats` has a module of its name, imported when
    used."""

    name: str
    suffix: str
    escapes: bool = False
    """Whether the format itself escapes what could steer a terminal or hide text."""

    note: str = ""
    """How the format says a sentence in its first lines; empty: it cannot."""

    def render(self, document: Document) -> str:
        """The document in this format, as it is: :func:`render` and :func:`write` mask it first."""
        drawn: str = import_module(f"gpuwatch.share.reports.formats.{self.name}").render(document)
        return drawn if self.escapes else harmless(drawn)

    def noted(self, drawn: str, *, redact: bool) -> str:
        """With what redaction cannot know, in the first lines."""
        if not redact or not self.note:
            return drawn
        from gpuwatch.core.masking.redaction import NOTE

        said = textwrap.fill(NOTE, 79) if self.name == "text" else NOTE
        before, _, after = self.note.partition("{}")
        head, body, rest = drawn.partition("<body>") if self.name == "html" else ("", "", drawn)
        return f"{head}{body}{before}{said}{after}{rest}"


FORMATS: tuple[Format, ...] = (
    Format("html", ".html", note='\n<p class="redacted">{}</p>'),
    Format("markdown", ".md", note="> {}\n\n"),
    Format("json", ".json", escapes=True),
    Format("csv", ".csv"),
    Format("text", ".txt", note="{}\n\n"),
)
BY_NAME = {entry.name: entry for entry in FORMATS}
SUFFIXES = " ".join(entry.suffix for entry in FORMATS)


def render(document: Document, format_name: str, *, width: int | None = None, redact: bool = False) -> str:
    """The document in this format, secrets masked (see :func:`masked_for_sending`); UsageError for an unknown name.

    ``text`` is for reading on a terminal: ``width`` columns (the terminal's), a run without its long tables,
    which :func:`write` puts into a file.
    """
    entry = BY_NAME.get(format_name)
    if entry is None:
        raise UsageError(
            f"no format called {format_name!r}{did_you_mean(format_name, BY_NAME)}", hint=f"known: {', '.join(BY_NAME)}"
        )
    if format_name == "text":
        import shutil  # slow to import, and most commands print no report

        from gpuwatch.share.reports.formats import text

        columns = width or shutil.get_terminal_size((text.WIDTH, 24)).columns
        return _masked(entry, document, lambda masked: harmless(text.render(masked, columns, details=False)), redact)
    return _masked(entry, document, entry.render, redact)


def _masked(entry: Format, document: Document, draw: Callable[[Document], str], redact: bool) -> str:
    from gpuwatch.core.masking.redaction import masked_for_sending

    return entry.noted(draw(masked_for_sending(document, redact=redact)), redact=redact)


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
    meant = did_you_mean(suffix, [entry.suffix for entry in FORMATS]) if suffix else ""
    wrong = f"no report format has the suffix {suffix}" if suffix else "it has no suffix, which chooses the format"
    raise UsageError(f"{path.name}: {wrong}{meant}", hint=f"use one of {SUFFIXES}")


def write(document: Document, path: Path, *, format_name: str | None = None, redact: bool = False) -> None:
    """Writes a report, in the format of its suffix if none is named; on a terminal, text as for stdout.

    See :func:`write_text`.
    """
    entry = BY_NAME[format_name or format_for(path)]
    columns = terminal_columns(path) if entry.name == "text" else None
    if columns is not None:
        write_text(render(document, "text", width=columns, redact=redact), path)
        return
    write_text(_masked(entry, document, entry.render, redact), path)
