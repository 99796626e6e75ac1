"""Paths of files as text for people: printable, with ``~``, and as URLs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from urllib.parse import quote

from gpuwatch.core.safe_text import printable
from gpuwatch.core.user_folders import home_folder


def printable_path(path: Path | str) -> str:
    """The whole path on one line, with bytes that stderr cannot show as ``\\xc3``."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    return printable(os.fsencode(path).decode(encoding, "backslashreplace"))


def path_with_tilde(path: Path) -> str:
    """The absolute path, with ``~`` for the home folder."""
    whole, home = str(path.absolute()), home_folder()
    return whole.replace(str(home), "~", 1) if home is not None and whole.startswith(f"{home}{os.sep}") else whole


def file_url(path: Path) -> str:
    """``file://host/path``: with the host, a terminal at the other end of ssh does not open its own file."""
    return f"file://{quote(os.uname().nodename)}{quote(str(path.absolute()))}"
