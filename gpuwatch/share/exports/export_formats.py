"""The formats of exports. To add one: a module with a function that yields bytes, and one line in FORMATS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpuwatch.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Format:
    """One format; its module is imported when it is used."""

    name: str
    suffixes: tuple[str, ...]
    module: str
    binary: bool = False
    package: str = ""
    """The package without which it cannot be written; the extra that installs it is named after the format."""

    def write(self, *contents: Any) -> Iterator[bytes]:
        """The export, in pieces; UsageError if its package is not installed."""
        if self.package and find_spec(self.package) is None:
            hint = f"pip install 'gpuwatch-tui[{self.name}]'"
            raise UsageError(f"{self.name} needs {self.package}, which is not installed", hint=hint)
        pieces: Iterator[bytes] = import_module(f"gpuwatch.share.exports.{self.module}").write(*contents)
        return pieces


FORMATS: tuple[Format, ...] = (
    Format("perfetto", (".pftrace", ".perfetto-trace"), "perfetto_writer", binary=True),
    Format("parquet", (".parquet",), "parquet_writer", binary=True, package="pyarrow"),
    Format("csv", (".csv",), "csv_writer"),
    Format("ndjson", (".ndjson", ".jsonl"), "ndjson_writer"),
    Format("openmetrics", (".om", ".prom"), "openmetrics_writer"),
)
BY_NAME = {entry.name: entry for entry in FORMATS}
SUFFIXES = " ".join(suffix for entry in FORMATS for suffix in entry.suffixes)


def format_for(path: Path) -> Format:
    """The format that a file's suffix stands for; UsageError for another suffix."""
    for entry in FORMATS:
        if path.suffix.lower() in entry.suffixes:
            return entry
    raise UsageError(f"{path.name}: its suffix is not that of a format", hint=f"use --format, or one of {SUFFIXES}")
