"""Reads the tables that are text files beside a module: a row on each line, cells between tabs."""

from __future__ import annotations

from pathlib import Path


def table_rows(module_file: str, name: str) -> list[list[str]]:
    """The cells of each row of the file ``name`` beside a module (its ``__file__``), without comments (``#``)."""
    lines = Path(module_file).with_name(name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]
