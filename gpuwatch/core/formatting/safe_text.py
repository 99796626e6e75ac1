"""Makes text from outside (command lines, device names, logs) harmless for screens and files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gpuwatch.core.model.control_characters import harmless, is_printable, printable

__all__ = ["UNKNOWN", "bounded", "file_name", "harmless", "is_printable", "printable", "shorten"]
UNKNOWN = "–"
"""What stands for a value that is not known."""


def bounded(line: str, most: int) -> str:
    """At most ``most`` characters of a line: its start, or a progress bar's last states, as it overwrites itself."""
    if len(line) <= most:
        return line
    state = line.find("\r", len(line) - most)
    return line[:most] if state < 0 else line[state + 1 :]


def shorten(text: str, width: int) -> str:
    """At most ``width`` characters, with an ellipsis if something was cut."""
    if len(text) <= width:
        return text
    return text[: max(width - 1, 0)] + "…" if width > 0 else ""


def file_name(path: Path | str) -> str:
    """The name of a file on one line, with bytes that stderr cannot show as ``\\xc3``."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    return printable(os.fsencode(path).decode(encoding, "backslashreplace"))
