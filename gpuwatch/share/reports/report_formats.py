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
from gpuwatch.core.formatting.terminal_support import terminal_columns
from gpuwatch.core.safe_text import printable_lines
from gpuwatch.core.write_file import is_special, write_text

if TYPE_CHECKING:
    from gpuwatch.core.model.json_codec import Document


@dataclass(frozen=True, slots=True)
class ReportFormat:
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
        rendered: str = import_module(f"gpuwatch.share.reports.formats.{self.name}").render(document)
        return rendered if self.escapes else printable_lines(rendered)

    def with_note(self, rendered: str, *, redact: bool) -> str:
        """With what redaction cannot know, in the first lines."""
        if not redact or not self.note:
            return rendered
        from gpuwatch.core.masking.masked_documents import NOTE

        note = textwrap.fill(NOTE, 79) if self.name == "text" else NOTE
        before, _, after = self.note.partition("{}")
        head, body, rest = rendered.partition("<body>") if self.name == "html" else ("", "", rendered)
        return f"{head}{body}{before}{note}{after}{rest}"


FORMATS: tuple[ReportFormat, ...] = (
    ReportFormat("html", ".html", note='\n<p class="redacted">{}</p>'),
    ReportFormat("markdown", ".md", note="> {}\n\n"),
    ReportFormat("json", ".json", escapes=True),
    ReportFormat("csv", ".csv"),
    ReportFormat("text", ".txt", note="{}\n\n"),
)
BY_NAME = {report_format.name: report_format for report_format in FORMATS}
SUFFIXES = " ".join(report_format.suffix for report_format in FORMATS)


def render(document: Document, format_name: str, *, width: int | None = None, redact: bool = False) -> str:
    """The document in this format, secrets masked (see :func:`masked_for_sending`); KeyError for an unknown name.

    ``text`` is for reading on a terminal: ``width`` columns (the terminal's), a run without its long tables,
    which :func:`write` puts into a file.
    """
    report_format = BY_NAME[format_name]
    if format_name == "text":
        import shutil  # slow to import, and most commands print no report

        from gpuwatch.share.reports.formats import text

        columns = width or shutil.get_terminal_size((text.WIDTH, 24)).columns
        return _masked(
            report_format, document, lambda masked: printable_lines(text.render(masked, columns, details=False)), redact
        )
    return _masked(report_format, document, report_format.render, redact)


def _masked(report_format: ReportFormat, document: Document, draw: Callable[[Document], str], redact: bool) -> str:
    from gpuwatch.core.masking.masked_documents import masked_for_sending

    return report_format.with_note(draw(masked_for_sending(document, redact=redact)), redact=redact)


def format_for(path: Path) -> str:
    """The name of the format that a file's suffix stands for; UsageError for another suffix.

    A device or a pipe without a suffix (``/dev/stderr``) gets text.
    """
    suffix = path.suffix.lower()
    if not suffix and is_special(path):
        return "text"
    for report_format in FORMATS:
        if report_format.suffix == suffix:
            return report_format.name
    suggestion = did_you_mean(suffix, [report_format.suffix for report_format in FORMATS]) if suffix else ""
    problem = f"no report format has the suffix {suffix}" if suffix else "it has no suffix, which chooses the format"
    raise UsageError(f"{path.name}: {problem}{suggestion}", hint=f"use one of {SUFFIXES}")


def write(document: Document, path: Path, *, format_name: str | None = None, redact: bool = False) -> None:
    """Writes a report, in the format of its suffix if none is named; on a terminal, text as for stdout.

    See :func:`write_text`.
    """
    report_format = BY_NAME[format_name or format_for(path)]
    columns = terminal_columns(path) if report_format.name == "text" else None
    if columns is not None:
        write_text(render(document, "text", width=columns, redact=redact), path)
        return
    write_text(_masked(report_format, document, report_format.render, redact), path)
