"""The formats of exports. To add one: a module ``<name>_writer.py`` with ``write``, and one line in FORMATS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpuwatch.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """One format; the module that writes it is imported when it is used."""

    name: str
    suffixes: tuple[str, ...]
    binary: bool = False
    package: str = ""
    """The package without which it cannot be written; the extra that installs it is named after the format."""

    def write(self, *contents: Any) -> Iterator[bytes]:
        """The export, in pieces; UsageError if its package is not installed."""
        if self.package and find_spec(self.package) is None:
            hint = f"pip install 'gpuwatch-tui[{self.name}]'"
            raise UsageError(f"{self.name} needs {self.package}, which is not installed", hint=hint)
        pieces: Iterator[bytes] = import_module(f"gpuwatch.share.exports.{self.name}_writer").write(*contents)
        return pieces


FORMATS: tuple[ExportFormat, ...] = (
    ExportFormat("perfetto", (".pftrace", ".perfetto-trace"), binary=True),
    ExportFormat("parquet", (".parquet",), binary=True, package="pyarrow"),
    ExportFormat("csv", (".csv",)),
    ExportFormat("ndjson", (".ndjson", ".jsonl")),
    ExportFormat("openmetrics", (".om", ".prom")),
)
BY_NAME = {entry.name: entry for entry in FORMATS}
SUFFIXES = " ".join(suffix for entry in FORMATS for suffix in entry.suffixes)


def format_for(path: Path) -> ExportFormat:
    """The format that a file's suffix stands for; UsageError for another suffix."""
    for entry in FORMATS:
        if path.suffix.lower() in entry.suffixes:
            return entry
    raise UsageError(f"{path.name}: its suffix is not that of a format", hint=f"use --format, or one of {SUFFIXES}")
